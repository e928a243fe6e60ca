package ec2sim

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// sign computes the signature that the owner of secret would have put on the
// request, as "AWS Signature Version 4" in the IAM user guide describes it.
func sign(r *http.Request, body []byte, sc scope, secret string) string {
	payload := cmp.Or(r.Header.Get("X-Amz-Content-Sha256"), hexSHA256(body))
	var headers strings.Builder
	for _, name := range sc.signedHeaders {
		headers.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	canonical := strings.Join([]string{
		r.Method,
		canonicalPath(r.URL.EscapedPath()),
		canonicalQuery(r.URL.Query()),
		headers.String(),
		strings.Join(sc.signedHeaders, ";"),
		payload,
	}, "\n")
	text := strings.Join([]string{
		signingAlgorithm,
		r.Header.Get("X-Amz-Date"),
		strings.Join([]string{sc.date, sc.region, sc.service, "aws4_request"}, "/"),
		hexSHA256([]byte(canonical)),
	}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{sc.date, sc.region, sc.service, "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	return hex.EncodeToString(hmacSHA256(key, text))
}

// headerValue returns a header with its inner runs of spaces folded. The server
// side of net/http moves Host out of the headers.
func headerValue(r *http.Request, name string) string {
	if name == "host" {
		return r.Host
	}
	if name == "content-length" {
		return r.Header.Get("Content-Length")
	}
	var values []string
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}

// canonicalPath encodes the path as sent once more, as every service but S3 wants.
func canonicalPath(path string) string {
	segments := strings.Split(cmp.Or(path, "/"), "/")
	for i, segment := range segments {
		segments[i] = strings.ReplaceAll(url.QueryEscape(segment), "+", "%20")
	}
	return strings.Join(segments, "/")
}

func canonicalQuery(query url.Values) string {
	var pairs []string
	for name, values := range query {
		for _, v := range values {
			pairs = append(pairs, strings.ReplaceAll(url.QueryEscape(name)+"="+url.QueryEscape(v), "+", "%20"))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
