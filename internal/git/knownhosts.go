package git

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// knownHosts are the lines of a known_hosts file, as sshd(8) describes it.
type knownHosts []knownHost

type knownHost struct {
	// patterns are names, with wildcards and negations, or one hashed name.
	patterns []string
	key      ssh.PublicKey
	revoked  bool
}

func parseKnownHosts(text string) (knownHosts, error) {
	var out knownHosts
	for rest := []byte(text); ; {
		marker, patterns, key, _, left, err := ssh.ParseKnownHosts(rest)
		if errors.Is(err, io.EOF) {
			if len(out) == 0 {
				return nil, errors.New("known_hosts holds no key")
			}
			return out, nil
		}
		if err != nil {
			line := bytes.Count([]byte(text), []byte("\n")) - bytes.Count(rest, []byte("\n")) + 1
			return nil, fmt.Errorf("known_hosts can't be read from its line %d on", line)
		}
		rest = left
		if marker == "cert-authority" {
			// Hosts that show certificates are rare among forges, and nothing is
			// lost but a host that could have been trusted.
			continue
		}
		out = append(out, knownHost{patterns: patterns, key: key, revoked: marker == "revoked"})
	}
}

// check returns an error unless the key is known for the host and not revoked.
func (k knownHosts) check(host, port string, shown ssh.PublicKey) error {
	found, same := false, false
	for _, h := range k {
		if bytes.Equal(h.key.Marshal(), shown.Marshal()) && h.revoked {
			return fmt.Errorf("%s showed %s, which known_hosts revokes", host, ssh.FingerprintSHA256(shown))
		}
		if h.revoked || !h.matches(host, port) {
			continue
		}
		found = true
		same = same || bytes.Equal(h.key.Marshal(), shown.Marshal())
	}
	switch {
	case same:
		return nil
	case !found:
		return fmt.Errorf("known_hosts has no line for %s; it showed %s %s", hostName(host, port), shown.Type(), ssh.FingerprintSHA256(shown))
	}
	return fmt.Errorf("%s showed %s %s", hostName(host, port), shown.Type(), ssh.FingerprintSHA256(shown))
}

// algorithms lists the algorithms of the keys that are known for a host, nil if
// none is.
func (k knownHosts) algorithms(host, port string) []string {
	var out []string
	for _, h := range k {
		if h.revoked || !h.matches(host, port) {
			continue
		}
		names := []string{h.key.Type()}
		if h.key.Type() == ssh.KeyAlgoRSA {
			names = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, name := range names {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// hostName is how known_hosts writes a host with a port that isn't SSH's own.
func hostName(host, port string) string {
	if port == "22" {
		return host
	}
	return "[" + host + "]:" + port
}

func (h knownHost) matches(host, port string) bool {
	name := strings.ToLower(hostName(host, port))
	hit := false
	for _, pattern := range h.patterns {
		if strings.HasPrefix(pattern, "|1|") {
			hit = hit || hashed(pattern, name)
			continue
		}
		pattern, negated := strings.CutPrefix(strings.ToLower(pattern), "!")
		if !matchHost(pattern, name) {
			continue
		}
		if negated {
			return false
		}
		hit = true
	}
	return hit
}

func matchHost(pattern, name string) bool {
	if pattern == name {
		return true
	}
	if net.ParseIP(strings.Trim(pattern, "[]")) != nil || !strings.ContainsAny(pattern, "*?") {
		return false
	}
	// Brackets are part of a name here, and a class to path.Match.
	quoted := strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern)
	ok, err := path.Match(quoted, name)
	return err == nil && ok
}

// hashed reports whether |1|SALT|HASH is a name's.
func hashed(pattern, name string) bool {
	parts := strings.Split(pattern, "|")
	if len(parts) != 4 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	sum, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	_, _ = mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), sum)
}
