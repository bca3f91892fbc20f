package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/aliyun/credentials-go/credentials/providers"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type once struct{ gave bool }

func (o *once) GetProviderName() string { return "once" }
func (o *once) GetCredentials() (*providers.Credentials, error) {
	if o.gave {
		return nil, errors.New("out of order")
	}
	o.gave = true
	return &providers.Credentials{AccessKeyId: "ID", AccessKeySecret: "S"}, nil
}

// Credentials that cannot be renewed are used for as long as they are good.
func TestPatience(t *testing.T) {
	s := &Source{origin: "those of the test", provider: &once{}, turn: make(chan struct{}, 1)}
	for range 2 {
		c, err := s.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "ID", c.AccessKeyID)
	}
	s.known = time.Now().Add(-patience - time.Second)
	_, err := s.Get(t.Context())
	assert.EqualError(t, err, "cannot get credentials: out of order; they are those of the test")
}
