package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/crypto/ssh"
)

// VerifyMode says what of a revision must be signed.
type VerifyMode string

// The modes bear Flux's names.
const (
	// VerifyHead wants a signed commit.
	VerifyHead VerifyMode = "HEAD"
	// VerifyTag wants a signed annotated tag.
	VerifyTag VerifyMode = "Tag"
	// VerifyTagAndHead wants both.
	VerifyTagAndHead VerifyMode = "TagAndHEAD"
)

// Keyring holds the public keys of those whose signatures count.
type Keyring struct {
	pgp openpgp.EntityList
	ssh []ssh.PublicKey
}

// ParseKeyring reads a Secret's data: armoured OpenPGP keys under names that end in
// .asc, and SSH keys, in the format of authorized_keys, under names that end in
// .sshpub or are authorized_keys. Other names are none of its business.
func ParseKeyring(files map[string][]byte) (Keyring, error) {
	var ring Keyring
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.HasSuffix(name, ".asc"):
			keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(files[name]))
			if err != nil {
				return Keyring{}, &Error{Op: "verify", Kind: ErrKeyring, Detail: fmt.Sprintf("%s holds no armoured OpenPGP public key", name)}
			}
			ring.pgp = append(ring.pgp, keys...)
		case strings.HasSuffix(name, ".sshpub"), name == "authorized_keys":
			for rest := files[name]; len(bytes.TrimSpace(rest)) > 0; {
				key, _, _, left, err := ssh.ParseAuthorizedKey(rest)
				if err != nil {
					return Keyring{}, &Error{Op: "verify", Kind: ErrKeyring, Detail: fmt.Sprintf("%s holds something else than SSH public keys, one a line", name)}
				}
				ring.ssh, rest = append(ring.ssh, key), left
			}
		}
	}
	if len(ring.pgp) == 0 && len(ring.ssh) == 0 {
		return Keyring{}, &Error{Op: "verify", Kind: ErrKeyring, Detail: "there is none; add OpenPGP keys as NAME.asc, or SSH keys as NAME.sshpub or authorized_keys"}
	}
	return ring, nil
}

// Verify checks that the commit, the tag that led to it, or both are signed by a
// key of the ring, as of now, and says by which. Its error is of kind ErrSignature.
func (c *Commit) Verify(ring Keyring, mode VerifyMode, now time.Time) (string, error) {
	var said []string
	if mode != VerifyHead {
		who, err := c.verifyTag(ring, now)
		if err != nil {
			return "", &Error{Op: "verify", URL: c.remote, Kind: ErrSignature, Detail: err.Error()}
		}
		said = append(said, fmt.Sprintf("the tag %s is signed by %s", c.Revision.Ref, who))
	}
	if mode != VerifyTag {
		raw, err := c.raw(plumbing.CommitObject, c.Revision.Hash)
		var who string
		if err == nil {
			var payload, signature []byte
			if payload, signature, err = splitCommit(raw); err == nil {
				who, err = ring.check(payload, signature, now)
			}
		}
		if err != nil {
			return "", &Error{Op: "verify", URL: c.remote, Kind: ErrSignature, Detail: fmt.Sprintf("commit %.12s: %s", c.Revision.Hash, err)}
		}
		said = append(said, fmt.Sprintf("commit %.12s is signed by %s", c.Revision.Hash, who))
	}
	return strings.Join(said, ", "), nil
}

// verifyTag checks the tag's signature, and that the tag is the one that was asked
// for: a server could hand out another one that was once signed.
func (c *Commit) verifyTag(ring Keyring, now time.Time) (string, error) {
	if c.Revision.Tag == "" {
		return "", fmt.Errorf("%s is no annotated tag, and nothing else can be signed; ask for one with spec.ref.tag or spec.ref.semver, and make it with git tag -s", orHead(c.Revision.Ref))
	}
	raw, err := c.raw(plumbing.TagObject, c.Revision.Tag)
	if err != nil {
		return "", err
	}
	head, _, _ := bytes.Cut(raw, []byte("\n\n"))
	fields := map[string]string{}
	for _, line := range strings.Split(string(head), "\n") {
		key, value, _ := strings.Cut(line, " ")
		if _, twice := fields[key]; twice {
			return "", fmt.Errorf("the tag has two lines %q", key)
		}
		fields[key] = value
	}
	name := strings.TrimPrefix(c.Revision.Ref, tagPrefix)
	if fields["tag"] != name {
		return "", fmt.Errorf("the tag behind %s calls itself %q", name, fields["tag"])
	}
	if fields["type"] != "commit" || fields["object"] != c.Revision.Hash {
		return "", fmt.Errorf("the tag %s does not name commit %.12s itself", name, c.Revision.Hash)
	}
	payload, signature := splitTag(raw)
	who, err := ring.check(payload, signature, now)
	if err != nil {
		return "", fmt.Errorf("tag %s: %w", name, err)
	}
	return who, nil
}

func orHead(ref string) string {
	if ref == "" {
		return "the commit"
	}
	return ref
}

// raw returns an object as it is hashed, without Git's own header.
func (c *Commit) raw(kind plumbing.ObjectType, hash string) ([]byte, error) {
	obj, err := c.store.EncodedObject(kind, plumbing.NewHash(hash))
	if err != nil {
		return nil, fmt.Errorf("the server did not send %s %.12s", kind, hash)
	}
	rd, err := obj.Reader()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(rd)
	return data, errors.Join(err, rd.Close())
}

// splitCommit returns what was signed, byte for byte, and the signature. Both of
// Git's signature headers are left out of what is signed; the one for SHA-1 counts.
func splitCommit(raw []byte) (payload, signature []byte, err error) {
	head, body, found := bytes.Cut(raw, []byte("\n\n"))
	if !found {
		return nil, nil, errors.New("the commit is malformed")
	}
	var into *[]byte
	var other []byte
	for _, line := range bytes.SplitAfter(append(slices.Clone(head), '\n'), []byte("\n")) {
		switch {
		case len(line) == 0:
		case line[0] == ' ' && into != nil:
			*into = append(*into, line[1:]...)
		case bytes.HasPrefix(line, []byte("gpgsig ")):
			if signature != nil {
				return nil, nil, errors.New("it has two signatures")
			}
			signature = append([]byte{}, line[len("gpgsig "):]...)
			into = &signature
		case bytes.HasPrefix(line, []byte("gpgsig-sha256 ")):
			into = &other
		default:
			into = nil
			payload = append(payload, line...)
		}
	}
	payload = append(payload, '\n')
	return append(payload, body...), signature, nil
}

// The first lines of signatures, by which Git finds them at the end of a tag.
const (
	beginPGP = "-----BEGIN PGP SIGNATURE-----"
	beginSSH = "-----BEGIN SSH SIGNATURE-----"
)

// splitTag returns what was signed and the signature, which ends the tag.
func splitTag(raw []byte) (payload, signature []byte) {
	at := -1
	for pos := 0; pos < len(raw); {
		line, _, _ := bytes.Cut(raw[pos:], []byte("\n"))
		if bytes.HasPrefix(line, []byte(beginPGP)) || bytes.HasPrefix(line, []byte(beginSSH)) {
			at = pos
		}
		pos += len(line) + 1
	}
	if at < 0 {
		return raw, nil
	}
	return raw[:at], raw[at:]
}

// check says whose signature it is.
func (k Keyring) check(payload, signature []byte, now time.Time) (string, error) {
	switch {
	case len(bytes.TrimSpace(signature)) == 0:
		return "", errors.New("it is not signed")
	case bytes.HasPrefix(signature, []byte(beginPGP)):
		return k.checkPGP(payload, signature, now)
	case bytes.HasPrefix(signature, []byte(beginSSH)):
		return k.checkSSH(payload, signature)
	}
	return "", errors.New("it has a signature that is neither OpenPGP's nor SSH's")
}

func (k Keyring) checkPGP(payload, signature []byte, now time.Time) (string, error) {
	if len(k.pgp) == 0 {
		return "", errors.New("it has an OpenPGP signature, and there are no OpenPGP keys to verify with; add the signer's as NAME.asc")
	}
	who, err := openpgp.CheckArmoredDetachedSignature(k.pgp, bytes.NewReader(payload), bytes.NewReader(signature),
		&packet.Config{Time: func() time.Time { return now }})
	switch {
	case err == nil:
		return "OpenPGP key " + who.PrimaryKey.KeyIdString(), nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return "", errors.New("it is signed by an OpenPGP key that is not among those to verify with")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		return "", errors.New("its signature, or the OpenPGP key that made it, has expired")
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return "", errors.New("the OpenPGP key that signed it is revoked")
	}
	return "", errors.New("its OpenPGP signature does not match what was signed")
}
