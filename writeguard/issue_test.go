package writeguard

import (
	"strings"
	"testing"

	"github.com/mcp-portal/mcp-portal/config"
)

// What is wrong with a condition is said in words of who writes it, at its
// place in the file, and of all rules at once.
func TestMistakesInConditions(t *testing.T) {
	for when, want := range map[string]string{
		`user.group == "eng"`:        `character 1: there is no user.group; did you mean user.groups?`,
		`arg.amount > 5`:             `character 1: there is no arg.amount; a condition can look at args,`,
		`tool.class == write`:        `character 15: there is no write; a condition can look at`,
		`args.a = 5`:                 `character 8: = does not compare; write ==`,
		`args.a == 1 and args.b`:     `character 13: write && for and`,
		`args.a >`:                   `character 9: the condition ends where a value is missing`,
		`size(args)`:                 `it gives int, not true or false; compare with something`,
		`1 + "a" == 2`:               `no matching overload`,
		"args.a == 1 &&\n  user.nam": `line 2, character 3: there is no user.nam; did you mean user.name?`,
	} {
		_, err := compileCondition(when)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", when, err, want)
		}
	}
	file := `auth: {mode: none}
guard:
  rules:
    - when: user.group == "eng"
      action: allow
    - when: args.a >
      action: deny
`
	cfg, err := config.Parse("portal.yaml", []byte(file), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	_, err = Compile(cfg)
	want := "portal.yaml:4:13: guard.rules[0].when: is no condition: character 1: there is no user.group; did you mean user.groups?\n" +
		"portal.yaml:6:13: guard.rules[1].when: is no condition: character 9: the condition ends where a value is missing"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
