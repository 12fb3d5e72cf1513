package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

const (
	// Ready is the line that a child prints once it can be used.
	Ready = "ready"
	// longestLine bounds what a child answers on one line.
	longestLine = 64 << 20
)

// Child is a process that is spoken to line by line over its standard input and output. It ends
// when its input does.
type Child struct {
	*Process
	in    io.WriteCloser
	lines chan string // closed when its output ends
}

// StartChild starts cmd and waits for the line Ready. When that does not come the child is ended.
func StartChild(ctx context.Context, name string, cmd *exec.Cmd) (*Child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	p, err := StartProcess(name, cmd)
	_ = write.Close() // the child has its own
	if err != nil {
		_ = read.Close()
		return nil, err
	}
	c := &Child{Process: p, in: in, lines: make(chan string, 1)}
	go func() { // ends with the child
		defer close(c.lines)
		defer read.Close()
		s := bufio.NewScanner(read)
		s.Buffer(nil, longestLine)
		for s.Scan() {
			c.lines <- s.Text()
		}
	}()
	line, err := c.line(ctx)
	if err == nil && line != Ready {
		err = fmt.Errorf("%s printed %q, expected %q", name, line, Ready)
	}
	if err != nil {
		_ = c.Cmd.Process.Kill()
		for range c.lines { // until its output ends
		}
		<-c.Done
		return nil, err
	}
	return c, nil
}

// Ask sends a line and returns the one that answers it.
func (c *Child) Ask(ctx context.Context, line string) (string, error) {
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		return "", c.lost(err)
	}
	return c.line(ctx)
}

func (c *Child) line(ctx context.Context) (string, error) {
	select {
	case text, ok := <-c.lines:
		if !ok {
			return "", c.lost(io.EOF)
		}
		return text, nil
	case <-ctx.Done():
		return "", fmt.Errorf("%s does not answer: %w: %s", c.Name, context.Cause(ctx), c.out.tail())
	}
}

func (c *Child) lost(err error) error {
	select {
	case <-c.Done:
		return c.Exited()
	default:
		return fmt.Errorf("%s: %w: %s", c.Name, err, strings.TrimSpace(c.out.tail()))
	}
}

// End closes the child's input and waits for it.
func (c *Child) End() error {
	_ = c.in.Close()
	go func() { // ends with the child: output that was not asked for must not hold it up
		for range c.lines {
		}
	}()
	return c.Wait()
}

// Query has a child that runs Serve answer a request; both are JSON.
func Query[A any](ctx context.Context, c *Child, request any) (answer A, err error) {
	line, err := json.Marshal(request)
	if err != nil {
		return answer, err
	}
	text, err := c.Ask(ctx, string(line))
	if err != nil {
		return answer, err
	}
	r := reply{Answer: &answer}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return answer, fmt.Errorf("%s answered %q: %w", c.Name, text, err)
	}
	if r.Error != "" {
		return answer, fmt.Errorf("%s: %s: %s", c.Name, line, r.Error)
	}
	return answer, nil
}

// reply is a line of Serve.
type reply struct {
	Answer any    `json:"answer"`
	Error  string `json:"error,omitempty"`
}

// Serve is the child's side: it says that it is ready, then has each line of in answered until in
// ends. So a parent that was killed leaves none behind.
func Serve(in io.Reader, out io.Writer, answer func(request []byte) (any, error)) error {
	fmt.Fprintln(out, Ready)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		a, err := answer(lines.Bytes())
		r := reply{Answer: a}
		if err != nil {
			r.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}
