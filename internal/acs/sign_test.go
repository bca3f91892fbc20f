package acs

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example of the vendor's page on signatures of version 3 gets the signature that the page says.
func TestSignature(t *testing.T) {
	r, err := http.NewRequest(http.MethodPost, "https://ecs.cn-shanghai.aliyuncs.com/?ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai", nil)
	require.NoError(t, err)
	r.Header.Set("x-acs-action", "RunInstances")
	r.Header.Set("x-acs-version", "2014-05-26")
	r.Header.Set(contentHash, hash(nil))
	c := Credentials{AccessKeyID: "YourAccessKeyId", AccessKeySecret: "YourAccessKeySecret"}
	c.sign(r, time.Date(2023, 10, 26, 18, 22, 32, 0, time.FixedZone("", 8*3600)), "3156853299f313e23d1673dc12e1703d")
	assert.Equal(t, "2023-10-26T10:22:32Z", r.Header.Get("x-acs-date"))
	assert.Equal(t, "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,"+
		"SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,"+
		"Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0", r.Header.Get("Authorization"))
}

func TestTokensStayOutOfMessages(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, "https://h/", nil)
	require.NoError(t, err)
	assert.Equal(t, "signed: secret-token", withoutToken("signed: secret-token", r))
	assert.Equal(t, "signed: secret-token", withoutToken("signed: secret-token", nil))
	r.Header.Set(securityToken, "secret-token")
	assert.Equal(t, "signed: ***", withoutToken("signed: secret-token", r))
}
