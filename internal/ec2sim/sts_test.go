package ec2sim_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/coppice-dev/coppice/internal/ec2sim"
)

// serviceAccountToken is a token as an API server writes it for IRSA.
func serviceAccountToken(t *testing.T, audience string, ends time.Time) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"iss": "https://oidc.eks.us-west-2.amazonaws.com/id/EXAMPLE", "sub": "system:serviceaccount:coppice-system:coppice",
		"aud": []string{audience}, "exp": ends.Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return "e30." + base64.RawURLEncoding.EncodeToString(text) + ".c2ln"
}

func TestAssumeRoleWithWebIdentity(t *testing.T) {
	w := newWorld(t, func(c *ec2sim.Config) { c.Keys = map[string]string{"AKIDEXAMPLE": "secret"} })
	ctx := t.Context()
	c := sts.NewFromConfig(w.aws)
	now := time.Now()
	const role = "arn:aws:iam::000000000000:role/coppice"
	who, err := c.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	mine := strings.Replace(role, "000000000000", *who.Account, 1)
	good := serviceAccountToken(t, "sts.amazonaws.com", now.Add(time.Hour))
	for what, x := range map[string]struct {
		role, session, token string
		seconds              int32
		want                 string
	}{
		"another account's":  {role: strings.Replace(role, "000000000000", "999999999999", 1), session: "s1", token: good, want: "AccessDenied"},
		"a session's name":   {role: mine, session: "a b", token: good, want: "ValidationError"},
		"too long":           {role: mine, session: "s1", token: good, seconds: 50000, want: "ValidationError"},
		"no token":           {role: mine, session: "s1", token: "x", want: "InvalidIdentityToken"},
		"the wrong audience": {role: mine, session: "s1", token: serviceAccountToken(t, "kubernetes", now.Add(time.Hour)), want: "InvalidIdentityToken"},
		"an old token":       {role: mine, session: "s1", token: serviceAccountToken(t, "sts.amazonaws.com", now.Add(-time.Second)), want: "ExpiredTokenException"},
	} {
		in := &sts.AssumeRoleWithWebIdentityInput{RoleArn: &x.role, RoleSessionName: &x.session, WebIdentityToken: &x.token}
		if x.seconds > 0 {
			in.DurationSeconds = &x.seconds
		}
		_, err := c.AssumeRoleWithWebIdentity(ctx, in)
		wantCode(t, what, err, x.want)
	}

	out, err := c.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{RoleArn: &mine, RoleSessionName: aws.String("pod-1"), WebIdentityToken: &good})
	if err != nil {
		t.Fatal(err)
	}
	held := w.aws.Copy()
	sign := func(token string) {
		held.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, token)
	}
	sign(*out.Credentials.SessionToken)
	if _, err := ec2.NewFromConfig(held).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{}); err != nil {
		t.Errorf("a call with the role's credentials: %v", err)
	}
	me, err := sts.NewFromConfig(held).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil || !strings.HasSuffix(*me.Arn, ":assumed-role/coppice/pod-1") {
		t.Errorf("the role is %v, %v", me, err)
	}
	sign("")
	_, err = ec2.NewFromConfig(held).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
	wantCode(t, "without the session's token", err, "AuthFailure")
}
