package company

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

//go:embed state/state.json.gz
var stateGz []byte

//go:embed state/logs.ndjson.gz
var logsGz []byte

//go:embed state/tools.json
var toolsJSON []byte

// Now is the instant at which the company's clock stands. All that is created
// carries it, so that a run is reproducible.
func Now() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

// Zone is a DNS zone.
type Zone struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"` // active, pending or paused
	Plan   string `json:"plan"`
}

// Record is a DNS record. TTL is in seconds; 1 means automatic.
type Record struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Name    string `json:"name"`
	Content string `json:"content"`
	TTL     int    `json:"ttl"`
	Proxied bool   `json:"proxied"`
}

// Issue is an issue or a pull request of a repository.
type Issue struct {
	Number        int      `json:"number"`
	Title         string   `json:"title"`
	State         string   `json:"state"` // open or closed
	IsPullRequest bool     `json:"is_pull_request"`
	Labels        []string `json:"labels"`
	Author        string   `json:"author"`
	Assignee      *string  `json:"assignee"`
	CreatedAt     string   `json:"created_at"`
	ClosedAt      *string  `json:"closed_at"`
	Comments      int      `json:"comments"`
	Milestone     *string  `json:"milestone"`
	Body          string   `json:"body"`
}

// Business is a company in the CRM.
type Business struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Domain  string `json:"domain"`
	Tier    string `json:"tier"` // free, pro or enterprise
	Country string `json:"country"`
}

// Contact is a person in the CRM.
type Contact struct {
	ID        string  `json:"id"`
	Email     string  `json:"email"`
	Firstname string  `json:"firstname"`
	Lastname  string  `json:"lastname"`
	CompanyID string  `json:"company_id"`
	Lifecycle string  `json:"lifecycle"` // subscriber, lead, customer or churned
	Owner     string  `json:"owner"`
	Phone     *string `json:"phone"`
	CreatedAt string  `json:"created_at"`
	Archived  bool    `json:"archived"`
}

// Customer is a billing customer; a company can have several.
type Customer struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Email         string `json:"email"`
	CompanyDomain string `json:"company_domain"`
	Currency      string `json:"currency"`
	Delinquent    bool   `json:"delinquent"`
}

// Invoice amounts are in the smallest unit of the currency.
type Invoice struct {
	ID         string `json:"id"`
	Customer   string `json:"customer"`
	Status     string `json:"status"` // draft, open, paid, void or uncollectible
	Currency   string `json:"currency"`
	AmountDue  int64  `json:"amount_due"`
	AmountPaid int64  `json:"amount_paid"`
	Created    string `json:"created"`
	DueDate    string `json:"due_date"`
	Number     string `json:"number"`
}

// Refund is money given back on a paid invoice.
type Refund struct {
	ID       string `json:"id"`
	Invoice  string `json:"invoice"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	Created  string `json:"created"`
}

// Document is an internal document.
type Document struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Folder    string `json:"folder"`
	UpdatedAt string `json:"updated_at"`
	Content   string `json:"content"`
}

// Article is an article of the knowledge base.
type Article struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Body      string `json:"body"`
	CreatedAt string `json:"created_at"`
}

// Channel is a chat channel.
type Channel struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Members int    `json:"members"`
}

// Message is a chat message.
type Message struct {
	ID        string `json:"id"`
	ChannelID string `json:"channel_id"`
	Text      string `json:"text"`
	TS        string `json:"ts"`
}

// fixture is the state of the whole company. The one decoded from the embedded
// file is never changed; every run works on a copy.
type fixture struct {
	CRM struct {
		Companies []Business `json:"companies"`
		Contacts  []Contact  `json:"contacts"`
	} `json:"crm"`
	Billing struct {
		Customers []Customer `json:"customers"`
		Invoices  []Invoice  `json:"invoices"`
		Refunds   []Refund   `json:"refunds"`
	} `json:"billing"`
	DNS struct {
		Zones   []Zone              `json:"zones"`
		Records map[string][]Record `json:"records"` // by zone id
	} `json:"dns"`
	Tracker struct {
		Repos  []string           `json:"repos"`
		Issues map[string][]Issue `json:"issues"` // by repository
		Users  []string           `json:"users"`
	} `json:"tracker"`
	Chat struct {
		Channels []Channel `json:"channels"`
		Messages []Message `json:"messages"`
	} `json:"chat"`
	KB struct {
		Articles []Article `json:"articles"`
	} `json:"kb"`
	Docs struct {
		Docs []Document `json:"docs"`
	} `json:"docs"`
}

// clone copies what tools change. Elements are replaced as a whole and what
// they point to is never written, so the copy may share it.
func (f *fixture) clone() *fixture {
	c := *f
	c.CRM.Contacts = slices.Clone(f.CRM.Contacts)
	c.Billing.Invoices = slices.Clone(f.Billing.Invoices)
	c.Billing.Refunds = slices.Clone(f.Billing.Refunds)
	c.DNS.Records = maps.Clone(f.DNS.Records)
	for zone, records := range c.DNS.Records {
		c.DNS.Records[zone] = slices.Clone(records)
	}
	c.Tracker.Issues = maps.Clone(f.Tracker.Issues)
	for repo, issues := range c.Tracker.Issues {
		c.Tracker.Issues[repo] = slices.Clone(issues)
	}
	c.Chat.Messages = slices.Clone(f.Chat.Messages)
	c.KB.Articles = slices.Clone(f.KB.Articles)
	return &c
}

func loadFixture() (*fixture, error) {
	raw, err := gunzip(stateGz)
	if err != nil {
		return nil, fmt.Errorf("unpacking the embedded state: %w", err)
	}
	var f fixture
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("decoding the embedded state: %w", err)
	}
	return &f, nil
}

// logLine is one line of the log: its bytes as they are sent, and what queries
// filter by.
type logLine struct {
	raw            []byte
	at             time.Time
	service, level string
	shard          int
}

func loadLogs() ([]logLine, error) {
	raw, err := gunzip(logsGz)
	if err != nil {
		return nil, fmt.Errorf("unpacking the embedded log: %w", err)
	}
	lines := make([]logLine, 0, bytes.Count(raw, []byte{'\n'})+1)
	for text := range bytes.SplitSeq(raw, []byte{'\n'}) {
		if len(text) == 0 {
			continue
		}
		var l struct {
			TS      time.Time `json:"ts"`
			Service string    `json:"service"`
			Level   string    `json:"level"`
			Shard   int       `json:"shard"`
		}
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("decoding line %d of the embedded log: %w", len(lines)+1, err)
		}
		lines = append(lines, logLine{raw: text, at: l.TS, service: l.Service, level: l.Level, shard: l.Shard})
	}
	return lines, nil
}

func gunzip(data []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
