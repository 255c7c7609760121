package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSecretFile bounds a file named by file:/path, so that a wrong path to
// something endless is an error and not a hang.
const maxSecretFile = 64 << 10

// expand replaces ${NAME} in a scalar value. Only this exact form counts:
// every other dollar sign is literal, because passwords, hashes and regular
// expressions are full of them. $${NAME} gives a literal ${NAME}. It returns
// the expanded text, whether any variable was used, and the names that are not
// set.
func expand(s string, env func(string) (string, bool)) (out string, used bool, unset []string) {
	if !strings.Contains(s, "${") {
		return s, false, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '$' {
			b.WriteByte(s[i])
			i++
			continue
		}
		if name, n := reference(s[i:]); n > 0 {
			used = true
			if v, ok := env(name); ok {
				b.WriteString(v)
			} else {
				unset = append(unset, name)
			}
			i += n
			continue
		}
		if _, n := reference(s[i+1:]); n > 0 { // $${NAME}
			b.WriteString(s[i+1 : i+1+n])
			i += 1 + n
			continue
		}
		b.WriteByte('$')
		i++
	}
	return b.String(), used, unset
}

// reference parses ${NAME} at the start of s and returns the name and the
// length of the whole reference, or 0 if there is none.
func reference(s string) (string, int) {
	if !strings.HasPrefix(s, "${") {
		return "", 0
	}
	for i := 2; i < len(s); i++ {
		c := s[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		switch {
		case c == '}' && i > 2:
			return s[2:i], i + 1
		case letter, i > 2 && c >= '0' && c <= '9':
		default:
			return "", 0
		}
	}
	return "", 0
}

// readSecretFile returns the content of a file:/path secret without its
// trailing newline, and its fingerprint. The error says what to do and never shows the content.
func readSecretFile(path string) (content string, sum Secret, err error) {
	if !filepath.IsAbs(path) {
		return "", "", fmt.Errorf("file: needs an absolute path; write file:/path/to/secret")
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", "", fmt.Errorf("cannot read the secret file %s (%v); create it or correct the path", path, cause(err))
	}
	if !info.Mode().IsRegular() {
		return "", "", fmt.Errorf("the secret file %s is not a regular file; give the path of a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", "", fmt.Errorf("cannot read the secret file %s (%v); let the portal's user read it", path, cause(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return "", "", fmt.Errorf("cannot read the secret file %s (%v)", path, cause(err))
	}
	if len(data) > maxSecretFile {
		return "", "", fmt.Errorf("the secret file %s is longer than %d bytes; a secret is one short line", path, maxSecretFile)
	}
	s := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(s, "\r"), fingerprint(data), nil
}

// cause drops the operation and path that the os package puts around the
// reason, because the message already names them.
func cause(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}
