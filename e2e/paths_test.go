package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// However an address is written, who sends no token gets nothing but what is
// meant for everybody: the sign-in is outside of all else.
func TestNothingIsOpenByAnotherSpelling(t *testing.T) {
	p := startSignInPortal(t, signInOptions{})
	host := strings.TrimPrefix(p.base(), "http://")
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	send := func(method, target string) (int, string) {
		t.Helper()
		c, err := net.DialTimeout("tcp", host, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		body := ""
		if method == "POST" {
			body = list
		}
		// As it is: clients of the library would clean the address up.
		if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", method, target, host, len(body), body); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, target, err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	private := []string{"/mcp", "/servers", "/clients", "/approvals", "/api/tools", "/connect?server=dns"}
	var targets []string
	for _, path := range private {
		bare := strings.TrimPrefix(path, "/")
		targets = append(targets, path, "/"+path, path+"/", path+"//", path+"/.", path+"/x/..", "/./"+bare, "/x/../"+bare, "/%2e/"+bare, "/healthz/..%2f"+bare, "/%2F"+bare, "/assets/../"+bare, "/assets/..%2f"+bare,
			"/.well-known/../"+bare, "/.well-known/oauth-protected-resource/../.."+path, path+"%00", path+"%2f", path+";x=y", strings.ToUpper(path), path+"\\", "/\\"+bare, path+"?access_token=x", path+"?token=x", "http://"+host+path, "http://evil.example"+path, path+"/readyz", path+"/assets/portal.css", "/healthz"+path)
	}
	for _, target := range targets {
		for _, method := range []string{"POST", "GET", "DELETE", "HEAD", "PUT", "post"} {
			status, body := send(method, target)
			if status/100 == 2 || strings.Contains(body, `"result"`) || strings.Contains(body, "dns_zones") || strings.Contains(body, "csrf") {
				t.Errorf("%s %q is answered %d %.200s", method, target, status, body)
			}
		}
	}
	// The same requests find what they ask for when nothing is odd.
	if status, _ := send("GET", "/.well-known/oauth-protected-resource/mcp"); status != 200 {
		t.Errorf("the metadata for everybody: %d", status)
	}
}
