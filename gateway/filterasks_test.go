package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Filters see what a server asks in the middle of a call, before the client
// does, and what the client answers, before the server does, whichever eras
// meet and however the question travels.
func TestFiltersSeeQuestionsAndAnswers(t *testing.T) {
	const card = "4111 1111 1111 1111"
	p, peers := full(t, "guard:\n  filters:\n    - {name: cards, in: [results], detect: [cards], action: redact}\n    - {name: codes, in: [arguments], pattern: 'C-[0-9]{4}', action: redact}\n    - {name: never, pattern: 'TOP-SECRET', action: block}\n")
	form := func(message string) string {
		return `{"method":"elicitation/create","params":{"message":"` + message + `","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}}`
	}
	sample := `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"sum ` + card + `"}}],"maxTokens":5}}`
	for _, e := range []era{legacy, modern} {
		for _, s := range peers {
			t.Run(fmt.Sprintf("%s client, %s server", e[:4], s.id), func(t *testing.T) {
				ask := func(list, says string) (answer, []string) {
					c := p.client(e, "", allCaps, nil)
					return c.asks("tools/call", `"name":"`+s.id+`_ask","arguments":{"asks":[`+list+`]}`, func(method string, _ json.RawMessage) string {
						if method == "sampling/createMessage" {
							return `{"role":"assistant","content":{"type":"text","text":"` + says + `"},"model":"m"}`
						}
						return `{"action":"accept","content":{"n":"` + says + `"}}`
					})
				}
				// The arguments of the call hold the question, so it must pass as such.
				got, questions := ask(form("pay with "+card+"?")+","+sample, "use C-1234 please")
				if all := strings.Join(questions, " "); len(questions) != 2 || strings.Contains(all, "4111") || !strings.Contains(all, "[redacted by the portal]") {
					t.Errorf("asked %q", questions)
				}
				if strings.Contains(got.Raw, "1234") || strings.Count(got.Raw, "[redacted by the portal]") < 2 {
					t.Errorf("the server got %s", got.Raw)
				}
				got, _ = ask(form("which?"), "TOP-SECRET")
				if strings.Contains(got.Raw, `"n":\"TOP`) || strings.Contains(got.text(), `TOP-SECRET"}`) || !strings.Contains(got.Raw, "withheld") && !strings.Contains(got.Raw, "may not be sent") {
					t.Errorf("a blocked answer: %s", got.Raw)
				}
			})
		}
	}
}
