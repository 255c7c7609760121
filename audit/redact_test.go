package audit

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestRedact(t *testing.T) {
	// Built from parts, so that scanners for leaked tokens do not stop at this
	// file.
	gh := "ghp" + "_" + strings.Repeat("a1B2", 9)
	jwt := "eyJ" + "hbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9." + "c2lnbmF0dXJl"
	for _, c := range []struct{ name, in, want string }{
		{"bearer", "got 401 for Bearer abcdef0123456789", "got 401 for Bearer [redacted]"},
		{"bearer in other case", "bearer ABCDEFGHIJ", "bearer [redacted]"},
		{"basic", "Basic dXNlcjpwYXNzd29yZA==", "Basic [redacted]"},
		{"header line", "Authorization: Token xyz\nAccept: */*", "Authorization: [redacted]\nAccept: */*"},
		{"header in JSON", `{"Authorization":"Bearer abc","x":1}`, `{"Authorization":"[redacted]","x":1}`},
		{"header as Go map", "map[Authorization:[Bearer abc123456] Accept:[x]]", "map[Authorization:[redacted]]]"},
		{"api key header", "x-api-key: 1234", "x-api-key: [redacted]"},
		{"header with brackets", "Authorization: [x] y\\z", "Authorization: [redacted]"},
		{"key with odd characters", "password=a(b)<c>$d\\e f", "password=[redacted] f"},
		{"cookie", "Cookie: a=b; c=d", "Cookie: [redacted]"},
		{"session id", "Mcp-Session-Id: 0a1b2c", "Mcp-Session-Id: [redacted]"},
		{"openai", "key sk-" + "proj-abcdefghijklmnop1234 is wrong", "key [redacted] is wrong"},
		{"stripe", "sk_" + "live_abcdefghijklmnop", "[redacted]"},
		{"github", "push with " + gh, "push with [redacted]"},
		{"github fine grained", "github" + "_pat_" + strings.Repeat("x", 30), "[redacted]"},
		{"slack", "xoxb" + "-123456789-abcdef", "[redacted]"},
		{"gitlab", "glpat" + "-abcdefghij0123456789", "[redacted]"},
		{"aws", "AKIA" + "ABCDEFGHIJKLMNOP used", "[redacted] used"},
		{"jwt", "token " + jwt + " expired", "token [redacted] expired"},
		{"jwt without signature", "eyJ" + "hbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", "[redacted]"},
		{"url userinfo", "dial redis://user:p%40ss@host:6379/0: refused", "dial redis://[redacted]@host:6379/0: refused"},
		{"url with only a token", "https://tok123@git.example.com/x", "https://[redacted]@git.example.com/x"},
		{"url with @ in the password", "https://u:p@ss@host/x", "https://[redacted]@host/x"},
		{"query", "GET /x?access_token=abc&page=2", "GET /x?access_token=[redacted]&page=2"},
		{"form", "grant_type=refresh_token&refresh_token=abc.def&client_id=x", "grant_type=refresh_token&refresh_token=[redacted]&client_id=x"},
		{"key value", "password=hunter2 user=bob", "password=[redacted] user=bob"},
		{"key colon", "password: hunter2, user: bob", "password: [redacted], user: bob"},
		{"prefixed key", "DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted]"},
		{"quoted with spaces", `secret="two words" x=1`, `secret="[redacted]" x=1`},
		{"single quotes", `{'api_key': 'abc def'}`, `{'api_key': '[redacted]'}`},
		{"json", `{"api_key":"abc","n":1}`, `{"api_key":"[redacted]","n":1}`},
		{"json with an escaped quote", `{"password":"a\"b","n":1}`, `{"password":"[redacted]","n":1}`},
		{"json inside a string", `"{\"client_secret\":\"abc\",\"n\":1}"`, `"{\"client_secret\":\"[redacted]\",\"n\":1}"`},
		{"camel case", `{"apiKey":"abc"}`, `{"apiKey":"[redacted]"}`},
		{"percent encoded", "redirect?token%3Dabcdef", "redirect?token%3D[redacted]"},
		{"private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", "[redacted]\nrest"},
		{"cut private key", "x -----BEGIN PRIVATE KEY-----\nMIIE", "x [redacted]"},

		{"empty", "", ""},
		{"plain", "server dns: connection refused", "server dns: connection refused"},
		{"counts of tokens", "max_tokens=5 token_count: 7 result_tokens=6000", "max_tokens=5 token_count: 7 result_tokens=6000"},
		{"the word alone", "the token has expired", "the token has expired"},
		{"basic as a word", "a basic example of use", "a basic example of use"},
		{"plain url", "https://host.example.com/a@b?c=d", "https://host.example.com/a@b?c=d"},
		{"mail address", "to bob@example.com", "to bob@example.com"},
		{"hash", "sha256:e3b0c44298fc1c149afbf4c8996fb924", "sha256:e3b0c44298fc1c149afbf4c8996fb924"},
		{"word with sk-", "task-management-board is down", "task-management-board is down"},
	} {
		if got := Redact(c.in); got != c.want {
			t.Errorf("%s: Redact(%q)\n got %q\nwant %q", c.name, c.in, got, c.want)
		}
		if once := Redact(c.in); Redact(once) != once {
			t.Errorf("%s: redacting twice changes %q to %q", c.name, once, Redact(once))
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("Authorization: Bearer abc", "password=")
	f.Add(`{"token":"x\"y"}`, "https://u:p@")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2hunter2hunter2"
		if strings.Contains(before+after, "hunter2") {
			t.Skip("the fuzzer wrote the secret itself")
		}
		// Whatever surrounds it, a bearer value with room around it is masked.
		out := Redact(before + "\nBearer " + secret + "\n" + after)
		if strings.Contains(out, secret) {
			t.Errorf("%q kept the secret: %q", before, out)
		}
		if utf8.ValidString(before) && utf8.ValidString(after) && !utf8.ValidString(out) {
			t.Errorf("%q became invalid UTF-8", before)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	for name, s := range map[string]string{
		"plain":  "calling dns: connection refused after 3 attempts " + strings.Repeat("x", 200),
		"secret": "calling dns: Authorization: Bearer abcdef0123456789 token=abc " + strings.Repeat("x y ", 50),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Redact(s)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"}, {"a\xffb", 5, "a\uFFFDb"}, {"", 1, ""},
	} {
		if got := cut(c.in, c.n); got != c.want {
			t.Errorf("cut(%q, %d) = %q; want %q", c.in, c.n, got, c.want)
		}
	}
}
