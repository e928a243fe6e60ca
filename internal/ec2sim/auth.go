package ec2sim

import (
	"net/http"
	"slices"
	"strings"
)

// scope is what a SigV4 signature says about itself in the Authorization header:
// Credential=KEY/DATE/REGION/SERVICE/aws4_request.
type scope struct {
	accessKey, date, region, service string
	signedHeaders                    []string
	signature                        string
}

const signingAlgorithm = "AWS4-HMAC-SHA256"

// parseScope reads the Authorization header; ok is false if there is none or it
// is no SigV4 header.
func parseScope(r *http.Request) (scope, bool) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), signingAlgorithm)
	if !ok {
		return scope{}, false
	}
	var s scope
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			parts := strings.Split(value, "/")
			if len(parts) != 5 || parts[4] != "aws4_request" {
				return scope{}, false
			}
			s.accessKey, s.date, s.region, s.service = parts[0], parts[1], parts[2], parts[3]
		case "SignedHeaders":
			s.signedHeaders = strings.Split(value, ";")
		case "Signature":
			s.signature = value
		}
	}
	return s, s.accessKey != "" && s.service != "" && s.signature != ""
}

// homes lists where a service may be signed for besides the simulator's own
// region: IAM and STS have a global endpoint in us-east-1, the price list is
// served from three regions.
func homes(service string) []string {
	switch service {
	case "iam", "sts":
		return []string{"us-east-1"}
	case "pricing":
		return []string{"us-east-1", "eu-central-1", "ap-south-1"}
	}
	return nil
}

// authorize refuses a request that is unsigned, signed for another region, or,
// if the simulator knows which keys exist, signed with another key or secret.
func (s *Server) authorize(r *http.Request, body []byte, sc scope, signed bool, svc *service) *apiError {
	if !signed {
		return svc.authError("MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	if sc.region != s.cfg.Region && !slices.Contains(homes(sc.service), sc.region) {
		return svc.authError("SignatureDoesNotMatch", "Credential should be scoped to a valid region, not '"+sc.region+"'.")
	}
	if s.cfg.Keys == nil {
		return nil
	}
	secret, ok := s.cfg.Keys[sc.accessKey]
	s.mu.Lock()
	held, assumed := s.sessions[sc.accessKey]
	s.mu.Unlock()
	if assumed {
		if err := svc.sessionError(held, r); err != nil {
			return err
		}
		secret, ok = held.secret, true
	}
	if !ok {
		return svc.authError("InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	if want := sign(r, body, sc, secret); want != sc.signature {
		return svc.authError("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.")
	}
	return nil
}

// authError words a refusal with the code that the service's protocol uses.
func (v *service) authError(code, message string) *apiError {
	switch {
	case v.protocol == ec2Query && code != "MissingAuthenticationToken":
		code = "AuthFailure"
	case v.protocol == jsonRPC || v.protocol == rest:
		switch code {
		case "MissingAuthenticationToken":
			code = "MissingAuthenticationTokenException"
		case "SignatureDoesNotMatch":
			code = "InvalidSignatureException"
		case "InvalidClientTokenId":
			code = "UnrecognizedClientException"
		}
	}
	return fail(code, "%s", message)
}
