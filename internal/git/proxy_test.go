package git

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// proxyServer is a proxy that wants a password: it passes requests on, and opens tunnels
// for those that are encrypted.
func proxyServer(t *testing.T, used *atomic.Int64) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		if !ok || user != "through" || password != "s3same" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		used.Add(1)
		if r.Method == http.MethodConnect {
			to, err := net.Dial("tcp", r.Host)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			from, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			fmt.Fprint(from, "HTTP/1.1 200 Connection established\r\n\r\n")
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			_, _ = io.Copy(from, to)
			_ = from.Close()
			return
		}
		out := r.Clone(r.Context())
		out.RequestURI = ""
		out.Header.Del("Proxy-Authorization")
		res, err := (&http.Transport{}).RoundTrip(out)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		for k, v := range res.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestProxy reads and writes through a proxy, in the clear and through a tunnel, and
// keeps its password to itself.
func TestProxy(t *testing.T) {
	s := newServer(t)
	s.commit("main", map[string]entry{"a.cue": file("a: 1\n")})
	var used atomic.Int64
	proxy := proxyServer(t, &used)
	r := s.remote()
	r.Proxy = Proxy{Address: proxy.URL, Username: "through", Password: "s3same"}
	rev, err := r.Head(t.Context(), Ref{Branch: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fetch(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	before := used.Load()
	if before < 2 {
		t.Errorf("%d requests went through the proxy", before)
	}
	if out, err := r.Push(t.Context(), testWrite(map[string]string{"x": "y"}), Retry{}); err != nil || !out.Changed || used.Load() == before {
		t.Errorf("push: %+v, %v, %d requests more", out, err, used.Load()-before)
	}
	tunnel := r
	tunnel.URL, tunnel.Auth = "https://"+strings.TrimPrefix(proxy.URL, "http://")+"/fleet.git", Auth{}
	before = used.Load()
	if _, err := tunnel.Head(t.Context(), Ref{Branch: "main"}); err == nil || used.Load() == before {
		t.Errorf("a tunnel to a server without TLS: %v, %d requests", err, used.Load()-before)
	}
	for why, p := range map[string]Proxy{"another password": {Address: proxy.URL, Username: "through", Password: "wr0ng"}, "none": {Address: proxy.URL}} {
		r.Proxy = p
		if _, err := r.Head(t.Context(), Ref{Branch: "main"}); err == nil || strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%s: %v", why, err)
		}
	}
	for _, address := range []string{"proxy:3128", "ftp://proxy", "http://u:s3same@proxy:3128", "http://"} {
		r.Proxy = Proxy{Address: address}
		if _, err := r.Head(t.Context(), Ref{Branch: "main"}); !errors.Is(err, ErrProxy) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", tunnel.Proxy, tunnel, tunnel); strings.Contains(text, "s3same") {
		t.Errorf("printed: %s", text)
	}
}
