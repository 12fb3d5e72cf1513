package loopback

import "testing"

func TestPlain(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]string{
		"": "", "ws://127.0.0.1:1, http://localhost:1,ws://[::1]:1,http://a.localhost,http://127.9.9.9": "",
		"wss://far:1,https://far": "", "ws://u:secret@far:1/path?x=1": "ws://far:1",
		"wss://a:1, ws://b:1 ,http://[2001:db8::1]:2/v1": "ws://b:1,http://[2001:db8::1]:2", "ws://localhost.example.com": "ws://localhost.example.com",
	} {
		if got := Plain(urls); got != want {
			t.Errorf("of %q it is %q, expected %q", urls, got, want)
		}
	}
}
