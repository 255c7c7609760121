package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// signInScenario reports whether a scenario of the suite is about signing in
// at a server, and so is driven by signingIn.
func signInScenario(scenario string) bool { return strings.HasPrefix(scenario, "auth/") }

// scenarioContext is what the suite tells a client of some scenarios.
type scenarioContext struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	PrivateKey   string `json:"private_key_pem"`
}

// signInConfig is a portal before one server at which people sign in, as the
// client of the scenario is meant to.
func signInConfig(upstream, scenario, about string) (string, error) {
	var c scenarioContext
	if about != "" {
		if err := json.Unmarshal([]byte(about), &c); err != nil {
			return "", fmt.Errorf("read what the suite says: %w", err)
		}
	}
	auth := "type: oauth, on_behalf: true"
	if strings.HasPrefix(scenario, "auth/client-credentials-") {
		auth = "type: client_credentials"
	}
	switch {
	case c.PrivateKey != "":
		auth += fmt.Sprintf(", client_id: %q, private_key: %q", c.ClientID, c.PrivateKey)
	case c.ClientID != "":
		auth += fmt.Sprintf(", client_id: %q, client_secret: %q", c.ClientID, c.ClientSecret)
	}
	return conformanceConfig(upstream) + "    auth: {" + auth + "}\n", nil
}

var (
	connectAddress = regexp.MustCompile(`http://[^"\s]*/connect/[A-Z2-7]+`)
	hiddenField    = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
)

// signInPage is where the portal's page of servers leads to.
const signInPage = "/connect?server=up"

// maxSignIns is how often the person of a scenario follows a link before they
// give up.
const maxSignIns = 4

// signingIn does what a person and their client do at a server that wants a
// sign-in: sign in, list, call, and sign in again when a call says so.
func signingIn(ctx context.Context, endpoint string, e era) error {
	base := strings.TrimSuffix(endpoint, "/mcp")
	interactive := !strings.Contains(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "/client-credentials-")
	if interactive {
		if err := followSignIn(ctx, base, base+signInPage); err != nil {
			return err
		}
	} else if err := awaitListed(ctx, endpoint); err != nil {
		return err
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "conformance-chain", Version: "1"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint}, &mcp.ClientSessionOptions{ProtocolVersion: string(e)})
	if err != nil {
		return fmt.Errorf("connect to the portal: %w", err)
	}
	defer s.Close()
	once := false // signed in again because nothing was listed
	for range maxSignIns {
		again, err := listAndCall(ctx, s)
		if again == "" || err != nil {
			return err
		}
		if again == signInPage {
			if once {
				return errors.New("the server lists nothing after a second sign-in")
			}
			once, again = true, base+signInPage
		}
		if err := followSignIn(ctx, base, again); err != nil {
			return err
		}
	}
	return errors.New("the server asks for one sign-in after another")
}

// listAndCall calls the first tool; again is where the person has to sign in
// for it.
func listAndCall(ctx context.Context, s *mcp.ClientSession) (again string, err error) {
	list, err := s.ListTools(ctx, nil)
	if err != nil {
		return "", fmt.Errorf("tools/list: %w", err)
	}
	tools := slices.DeleteFunc(list.Tools, func(t *mcp.Tool) bool { return isPortalTool(t.Name) })
	if len(tools) == 0 {
		res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "portal_list_servers"})
		if err != nil {
			return "", fmt.Errorf("portal_list_servers: %w", err)
		}
		b, err := json.Marshal(res)
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(b), "login_needed") {
			return "", fmt.Errorf("the server offers no tool: %s", b)
		}
		return signInPage, nil
	}
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tools[0].Name, Arguments: map[string]any{}})
	if err != nil {
		return "", fmt.Errorf("call %s: %w", tools[0].Name, err)
	}
	if !res.IsError {
		return "", nil
	}
	b, err := json.Marshal(res.Content)
	if err != nil {
		return "", err
	}
	if again = connectAddress.FindString(string(b)); again == "" {
		return "", fmt.Errorf("call %s: %s", tools[0].Name, b)
	}
	return again, nil
}

// followSignIn is a person who opens an address of the portal and signs in at
// the server. The suite's authorization servers ask nothing.
func followSignIn(ctx context.Context, base, address string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	b := &http.Client{Jar: jar}
	status, page, err := openPage(ctx, b, http.MethodGet, address, base, nil)
	if err != nil {
		return err
	}
	_, form, ok := strings.Cut(page, `action="/connect"`)
	if status != http.StatusOK || !ok {
		return fmt.Errorf("sign in at %s: %d %s", address, status, pageText(page))
	}
	fields := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	if status, page, err = openPage(ctx, b, http.MethodPost, base+"/connect", base, fields); err != nil {
		return err
	}
	if status != http.StatusOK || !strings.Contains(page, "signed in") {
		return fmt.Errorf("the sign-in ended with %d %s", status, pageText(page))
	}
	return nil
}

func openPage(ctx context.Context, b *http.Client, method, address, origin string, form url.Values) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Accept", "text/html")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
	}
	resp, err := b.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w", method, address, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

var tags = regexp.MustCompile(`(?s)<(script|style|head).*?</(script|style|head)>|<[^>]*>|\s+`)

// pageText is what a page says.
func pageText(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(page, " "))), " ")
}
