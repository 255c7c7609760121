package company

import (
	"fmt"
	"slices"
	"time"
)

const billingPage, billingPageMax = 10, 100

type listPage[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
}

// startingAfter returns the page of the matching items that follow the item with
// the id after. The place is that in the whole list, so that paging goes on
// rightly when the item no longer matches.
func startingAfter[T any](all []T, id func(T) string, matches func(T) bool, after string, limit *int, what string) (any, error) {
	size, err := pageSize("limit", limit, billingPage, billingPageMax)
	if err != nil {
		return nil, err
	}
	from := 0
	if after != "" {
		from = 1 + slices.IndexFunc(all, func(item T) bool { return id(item) == after })
		if from == 0 {
			return nil, fmt.Errorf("starting_after: no %s has the id %q; give the id of the last item of the page before", what, after)
		}
	}
	page := listPage[T]{Object: "list", Data: []T{}}
	for _, item := range all[from:] {
		if !matches(item) {
			continue
		}
		if len(page.Data) == size {
			page.HasMore = true
			break
		}
		page.Data = append(page.Data, item)
	}
	return page, nil
}

func customersList(r *run, a struct {
	StartingAfter string `json:"starting_after"`
	Limit         *int   `json:"limit"`
}) (any, error) {
	return startingAfter(r.Billing.Customers, func(c Customer) string { return c.ID },
		func(Customer) bool { return true }, a.StartingAfter, a.Limit, "customer")
}

func invoicesList(r *run, a struct {
	Status        string `json:"status"`
	Customer      string `json:"customer"`
	StartingAfter string `json:"starting_after"`
	Limit         *int   `json:"limit"`
}) (any, error) {
	if err := oneOf("status", a.Status, "draft", "open", "paid", "void", "uncollectible"); err != nil {
		return nil, err
	}
	if a.Customer != "" && !slices.ContainsFunc(r.Billing.Customers, func(c Customer) bool { return c.ID == a.Customer }) {
		return nil, fmt.Errorf("no customer has the id %q; customers_list has the ids", a.Customer)
	}
	return startingAfter(r.Billing.Invoices, func(i Invoice) string { return i.ID }, func(i Invoice) bool {
		return (a.Status == "" || i.Status == a.Status) && (a.Customer == "" || i.Customer == a.Customer)
	}, a.StartingAfter, a.Limit, "invoice")
}

// invoice returns the index of an invoice.
func (r *run) invoice(id string) (int, error) {
	i := slices.IndexFunc(r.Billing.Invoices, func(i Invoice) bool { return i.ID == id })
	if i < 0 {
		return 0, fmt.Errorf("no invoice has the id %q (an id begins with in_; the number INV-… is none); invoices_list has the ids", id)
	}
	return i, nil
}

type invoiceRef struct {
	ID string `json:"id"`
}

func invoiceGet(r *run, a invoiceRef) (any, error) {
	i, err := r.invoice(a.ID)
	if err != nil {
		return nil, err
	}
	return r.Billing.Invoices[i], nil
}

func invoiceVoid(r *run, a invoiceRef) (any, error) {
	i, err := r.invoice(a.ID)
	if err != nil {
		return nil, err
	}
	invoice := r.Billing.Invoices[i]
	if invoice.Status == "paid" || invoice.Status == "void" {
		return nil, fmt.Errorf("invoice %s is %s and cannot be voided", invoice.Number, invoice.Status)
	}
	invoice.Status = "void"
	r.Billing.Invoices[i] = invoice
	return invoice, nil
}

func refundCreate(r *run, a struct {
	Invoice string `json:"invoice"`
	Amount  *int64 `json:"amount"`
}) (any, error) {
	i, err := r.invoice(a.Invoice)
	if err != nil {
		return nil, err
	}
	invoice := r.Billing.Invoices[i]
	if invoice.Status != "paid" {
		return nil, fmt.Errorf("invoice %s is %s; only a paid invoice can be refunded", invoice.Number, invoice.Status)
	}
	left := invoice.AmountPaid
	for _, other := range r.Billing.Refunds {
		if other.Invoice == invoice.ID {
			left -= other.Amount
		}
	}
	amount := left
	if a.Amount != nil {
		amount = *a.Amount
	}
	if amount < 1 || amount > left {
		return nil, fmt.Errorf("%d cannot be refunded on invoice %s: %d %s are left (smallest currency unit)", amount, invoice.Number, left, invoice.Currency)
	}
	refund := Refund{
		ID: r.nextID("re_"), Invoice: invoice.ID, Amount: amount, Currency: invoice.Currency,
		Status: "succeeded", Created: Now().Format(time.RFC3339),
	}
	r.Billing.Refunds = append(r.Billing.Refunds, refund)
	return refund, nil
}
