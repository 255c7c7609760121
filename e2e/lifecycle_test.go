package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// At SIGTERM calls under way finish, nothing new begins, streams end, and the
// program exits well.
func TestShutdownDrains(t *testing.T) {
	hold := make(chan struct{})
	slow, started := slowServer(t, hold)
	p := startProcess(t, "serve", "--config", writeConfig(t, "listen: 127.0.0.1:0\nauth: {mode: none}\nlimits: {drain: 60s}\nservers:\n  slow: {url: "+slow+", trust_annotations: true}\n"))
	p.waitServers(t, 1)
	s := connect(t, p, legacy, "", nil)
	result := make(chan error, 1)
	go func() {
		res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "slow_wait"})
		if err == nil && res.IsError {
			err = fmt.Errorf("%s", mustJSON(res.Content))
		}
		result <- err
	}()
	<-started
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new work is refused", func() error {
		resp, err := http.Post(p.URL, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			return nil // the listener is closed
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return nil
		}
		return fmt.Errorf("%s", resp.Status)
	})
	select {
	case err := <-result:
		t.Fatalf("the call under way ended before its server answered: %v", err)
	default:
	}
	close(hold)
	if err := <-result; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	select {
	case <-p.done:
	case <-time.After(60 * time.Second):
		t.Fatal("the program did not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Children of stdio servers end with the portal, however it ends.
func TestChildrenEndWithThePortal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		file := filepath.Join(t.TempDir(), "pid")
		p := startProcess(t, "serve", "--config", writeConfig(t, fmt.Sprintf("listen: 127.0.0.1:0\nauth: {mode: none}\nservers:\n  deaf:\n    command: [sh, -c, %q]\n", "trap '' TERM HUP INT; echo $$ > "+file+"; exec sleep 1000")))
		var pid int
		eventually(t, "the child runs", func() error {
			b, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
			return err
		})
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		<-p.done
		eventually(t, fmt.Sprintf("the child is gone after %v", sig), func() error {
			if err := syscall.Kill(pid, 0); err == nil {
				return fmt.Errorf("process %d lives", pid)
			}
			return nil
		})
	}
}
