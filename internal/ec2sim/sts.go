package ec2sim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

func stsActions() map[string]action {
	return map[string]action{
		"GetCallerIdentity":         {run: (*Server).getCallerIdentity},
		"AssumeRoleWithWebIdentity": {run: (*Server).assumeRoleWithWebIdentity, anonymous: true},
	}
}

// sessionLife is how long a role's credentials are good for unless the caller says
// otherwise: STS's DurationSeconds, which is 900 s to 43,200 s.
const sessionLife = time.Hour

// session is what a role that was assumed may sign with. It ends in real time, as the
// SDK renews it by the machine's clock.
type session struct {
	secret, token, arn string
	ends               time.Time
}

func (s *Server) getCallerIdentity(c *call) error {
	arn, id := s.caller(), s.iamID("AIDA", "user", "coppice")
	sc, _ := parseScope(c.http)
	if held, ok := s.sessions[sc.accessKey]; ok {
		arn, id = held.arn, s.iamID("AROA", "role", held.arn)
	}
	c.x.str("Arn", arn)
	c.x.str("UserId", id)
	c.x.str("Account", s.cfg.Account)
	return nil
}

// assumeRoleWithWebIdentity is how a pod with a service account's token becomes a role
// (IRSA). The token's issuer isn't asked: its form, audience and end are checked.
func (s *Server) assumeRoleWithWebIdentity(c *call) error {
	role, name := c.p.str("RoleArn"), c.p.str("RoleSessionName")
	path, ok := strings.CutPrefix(role, "arn:aws:iam::"+s.cfg.Account+":role/")
	if !ok || path == "" {
		return fail("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	}
	if !regexp.MustCompile(`^[\w+=,.@-]{2,64}$`).MatchString(name) {
		return fail("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", name)
	}
	seconds, err := c.p.int("DurationSeconds", int(sessionLife/time.Second))
	if err != nil {
		return err
	}
	if seconds < 900 || seconds > 43200 {
		return fail("ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	now := time.Now()
	claims, err := readToken(c.p.str("WebIdentityToken"))
	if err != nil {
		return err
	}
	if !slices.Contains(claims.Audience, "sts.amazonaws.com") {
		return fail("InvalidIdentityToken", "Incorrect token audience")
	}
	if ends := time.Unix(int64(claims.Expires), 0); !now.Before(ends) {
		return fail("ExpiredTokenException", "Token expired: current date/time %d must be before the expiration date/time %d", now.Unix(), ends.Unix())
	}

	number := fmt.Sprint(len(s.sessions))
	held := session{
		secret: fmt.Sprintf("%016x%016x", s.hash("session", number, "1"), s.hash("session", number, "2")),
		token:  base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016x-%s-%s", s.hash("session", number, "3"), role, name)),
		arn:    "arn:aws:sts::" + s.cfg.Account + ":assumed-role/" + path[strings.LastIndex(path, "/")+1:] + "/" + name,
		ends:   now.Add(time.Duration(seconds) * time.Second),
	}
	key := fmt.Sprintf("ASIA%016X", s.hash("session", number, "key"))
	s.sessions[key] = held
	c.x.str("SubjectFromWebIdentityToken", claims.Subject)
	c.x.str("Audience", "sts.amazonaws.com")
	c.x.str("Provider", claims.Issuer)
	c.x.in("AssumedRoleUser", func() {
		c.x.str("Arn", held.arn)
		c.x.str("AssumedRoleId", s.iamID("AROA", "role", held.arn)+":"+name)
	})
	c.x.in("Credentials", func() {
		c.x.str("AccessKeyId", key)
		c.x.str("SecretAccessKey", held.secret)
		c.x.str("SessionToken", held.token)
		c.x.time("Expiration", held.ends)
	})
	return nil
}

// claims are those of a service account's token that STS looks at.
type claims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience []string `json:"aud"`
	Expires  float64  `json:"exp"`
}

func readToken(token string) (claims, error) {
	var out claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return out, fail("InvalidIdentityToken", "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil || out.Subject == "" {
		return out, fail("InvalidIdentityToken", "Couldn't read the claims of the token")
	}
	return out, nil
}

// sessionError says what is wrong with a request that is signed with a role's
// credentials.
func (v *service) sessionError(held session, r *http.Request) *apiError {
	switch {
	case r.Header.Get("X-Amz-Security-Token") != held.token:
		return v.authError("InvalidClientTokenId", "The security token included in the request is invalid")
	case !time.Now().Before(held.ends):
		if v.protocol == jsonRPC || v.protocol == rest {
			return fail("ExpiredTokenException", "The security token included in the request is expired")
		}
		if v.protocol == ec2Query {
			return fail("RequestExpired", "Request has expired.")
		}
		return fail("ExpiredToken", "The security token included in the request is expired")
	}
	return nil
}
