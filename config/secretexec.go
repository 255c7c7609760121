package config

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	execTimeout = 10 * time.Second // of a command that prints a secret
	execEvery   = 5 * time.Minute  // a running portal runs it again after, to see a new secret
)

// parseExec reads the command of an exec: secret: words separated by spaces,
// or a JSON list where an argument holds a space. There is no shell.
func parseExec(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	var argv []string
	if strings.HasPrefix(text, "[") {
		if json.Unmarshal([]byte(text), &argv) != nil {
			return nil, errors.New(`exec: is not a JSON list of texts; write exec:["/path/to/program","argument"]`)
		}
	} else {
		argv = strings.Fields(text)
	}
	switch {
	case len(argv) == 0 || argv[0] == "":
		return nil, errors.New("exec: names no program; write exec:/path/to/program and its arguments")
	case !filepath.IsAbs(argv[0]):
		return nil, errors.New("exec: needs the absolute path of the program; it is not looked up in PATH, and there is no shell")
	}
	return argv, nil
}

// runSecret runs a command that prints a secret and returns what it prints
// without the trailing newline, and its fingerprint. Errors never repeat what
// the command printed: it may be half a secret.
func runSecret(argv []string) (content string, sum Secret, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), execTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe
	// What the program needs to find its own credentials; not the secrets of
	// the portal's environment.
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "USER", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	out := &bounded{max: maxSecretFile}
	cmd.Stdout, cmd.Stderr = out, io.Discard
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", "", fmt.Errorf("the command %s printed no secret within %v; run it by hand as the portal's user", argv[0], execTimeout)
	case out.over:
		return "", "", fmt.Errorf("the command %s printed more than %d bytes; a secret is one short line", argv[0], maxSecretFile)
	case errors.As(err, &exit):
		return "", "", fmt.Errorf("the command %s ended with exit code %d; run it by hand as the portal's user", argv[0], exit.ExitCode())
	case err != nil:
		return "", "", fmt.Errorf("the command %s cannot be run (%w); correct its path", argv[0], cause(err))
	}
	s := strings.TrimSuffix(out.got.String(), "\n")
	return strings.TrimSuffix(s, "\r"), fingerprint(out.got.Bytes()), nil
}

// bounded keeps so many bytes of output and notes that there were more. The
// buffer is not embedded: its ReadFrom would know no bound.
type bounded struct {
	got  bytes.Buffer
	max  int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.got.Len()+len(p) > b.max {
		b.over = true
		return 0, errors.New("too much output")
	}
	return b.got.Write(p)
}
