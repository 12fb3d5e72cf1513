package nodeagent

import (
	"os"
	"os/exec"
	"testing"
)

// fifoVariable names the FIFO that the command of TestAgentProcess opens.
const fifoVariable = "FREESLOT_TEST_AGENT_FIFO"

// TestAgentProcess is not a test but the process that TestCommandEndsWithTheAgent kills.
func TestAgentProcess(t *testing.T) {
	path := os.Getenv(fifoVariable)
	if path == "" {
		t.Skip("only run by TestCommandEndsWithTheAgent")
	}
	e := command(t, `exec 3>"$FIFO"; echo $$ >&3; exec sleep 1000`, func(c *Command) {
		c.Env, c.User = map[string]string{"FIFO": path}, os.Getenv(plainVariable)
	})
	_, err := e.run(t.Context(), testJob())
	t.Fatalf("the command ended by itself: %v", err)
}

// A command must not outlive a killed agent: its slot is free again once the agent is back.
func TestCommandEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	checkEndsWithTheAgent(t, fifo(t), "")
}

// checkEndsWithTheAgent kills an agent whose command runs as a user; "" for the agent's.
func checkEndsWithTheAgent(t *testing.T, path, as string) {
	t.Helper()
	agent := exec.Command(os.Args[0], "-test.run=^TestAgentProcess$", "-test.timeout=1m")
	agent.Env = append(os.Environ(), fifoVariable+"="+path, plainVariable+"="+as)
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	f := begin(t, path)
	if err := agent.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = agent.Wait() // it was killed
	f.ended(t)
}
