package acs

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGoldenSignature(t *testing.T) {
	c := Credentials{AccessKeyID: "testid", AccessKeySecret: "testsecret", SecurityToken: "token"}
	body := []byte(`{"a":1}`)
	r, err := http.NewRequest(http.MethodPut, "https://cs.cn-hangzhou.aliyuncs.com/clusters/c1/nodepools/np1?empty=&b=x+y%2Fz&a=1&a-b=2", bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("x-acs-version", apiVersion)
	r.Header.Set("x-acs-action", "ModifyClusterNodePool")
	c.sign(r, body, time.Date(2026, 11, 21, 3, 4, 5, 0, time.FixedZone("", 8*3600)))
	assert.Equal(t, `PUT
application/json
u2y1xo30ZSlByvZSo2by2A==
application/json
Fri, 20 Nov 2026 19:04:05 GMT
x-acs-action:ModifyClusterNodePool
x-acs-security-token:token
x-acs-signature-method:HMAC-SHA1
x-acs-signature-version:1.0
x-acs-version:2015-12-15
/clusters/c1/nodepools/np1?a=1&a-b=2&b=x y/z&empty`, stringToSign(r))
	assert.Equal(t, "acs testid:8liPy4fET4QFHLBbK7pTTxWCNHk=", r.Header.Get("Authorization"))
}

// The vendor's SDK signs a request; the same request must get the same signature here.
func TestSignatureIsTheSDKs(t *testing.T) {
	for _, query := range []map[string]string{nil, {"NodepoolName": "a b/ü", "force": "", "z": "1", "z-y": "2"}} {
		common := requests.NewCommonRequest()
		common.Method, common.Product, common.Version = http.MethodPost, "CS", apiVersion
		common.PathPattern = "/clusters/c1/nodepools"
		common.Content = []byte(`{"nodepool_info":{"name":"x"}}`)
		for key, value := range query {
			common.QueryParams[key] = value
		}
		common.TransToAcsRequest()
		require.NoError(t, auth.Sign(common, nil, "cn-hangzhou", credentials.NewStaticSTSCredentialsProvider("testid", "testsecret", "token")))

		r, err := http.NewRequest(http.MethodPost, "https://h"+common.PathPattern, bytes.NewReader(common.Content))
		require.NoError(t, err)
		values := r.URL.Query()
		for key, value := range query {
			values.Set(key, value)
		}
		r.URL.RawQuery = values.Encode()
		for name, value := range common.GetHeaders() {
			if name != "Authorization" {
				r.Header.Set(name, value)
			}
		}
		assert.Equal(t, common.GetStringToSign(), stringToSign(r))
		date, err := http.ParseTime(common.GetHeaders()["Date"])
		require.NoError(t, err)
		Credentials{AccessKeyID: "testid", AccessKeySecret: "testsecret", SecurityToken: "token"}.sign(r, common.Content, date)
		assert.Equal(t, common.GetHeaders()["Authorization"], r.Header.Get("Authorization"))
	}
}
