package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs"
)

// A program gives credentials; what else it prints goes nowhere, and the file of profiles stays as it is.
func TestProcess(t *testing.T) {
	const good = `{"mode":"StsToken","access_key_id":"ID","access_key_secret":"planted-secret","sts_token":"T","expiration":"2000-01-01T00:00:00Z"}`
	for name, test := range map[string]struct {
		script, arguments string
		fails             string
	}{
		"credentials":      {script: "echo '" + good + "'"},
		"quoted arguments": {script: `[ "$1" = "a b" ] && [ "$2" = "" ] && [ "$3" = c ] && echo '` + good + "'", arguments: ` "a b" '' c`},
		"chatter":          {script: "echo welcome; echo '" + good + "'", fails: "prints no credentials"},
		"no secret":        {script: `echo '{"access_key_id":"planted-secret"}'`, fails: "prints no credentials"},
		"failure":          {script: "echo planted-secret; echo planted-secret >&2; exit 3", fails: "exit status 3; run it to see"},
		"no end":           {script: "sleep 100", fails: "has not ended within"},
		"children":         {script: "(sleep 100; echo planted-secret) & echo '" + good + "'", fails: "WaitDelay expired"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"+test.script+"\n"), 0o700))
			path := filepath.Join(t.TempDir(), "config.json")
			text := fmt.Sprintf(`{"current":"p","language":"en","profiles":[{"name":"p","mode":"External","process_command":%q}]}`, program+test.arguments)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			source, err := New(Settings{SharedCredentialsFile: path})
			require.NoError(t, err)
			source.provider.(*process).within = 2 * time.Second

			c, err := source.Get(t.Context())
			if test.fails == "" {
				require.NoError(t, err)
				assert.Equal(t, acs.Credentials{AccessKeyID: "ID", AccessKeySecret: "planted-secret", SecurityToken: "T"}, c)
			} else {
				require.ErrorContains(t, err, test.fails)
				assert.NotContains(t, err.Error(), "planted-secret")
			}
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, text, string(after))
		})
	}
}
