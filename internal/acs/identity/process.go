package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"time"

	"github.com/aliyun/credentials-go/credentials/providers"
)

// process gives the credentials that a program prints, of a profile of mode External. The vendor's
// library prints what it cannot read, secrets included, to this process' output, which Terraform logs;
// writes the answer into the file of profiles; and waits for children of the program without end.
type process struct {
	command string
	within  time.Duration // how long the program may take
	last    *providers.Credentials
	until   time.Time
}

const (
	// processTime is how long the program may take, as in the vendor's library.
	processTime = time.Minute
	// childrenTime is how much longer its children may keep its output open.
	childrenTime = time.Second
)

// word is an argument of a command, which may be quoted.
var word = regexp.MustCompile(`"([^"]*)"|'([^']*)'|\S+`)

func (p *process) GetProviderName() string { return "external" }

// GetCredentials runs the program, unless the credentials that it gave hold. What it prints is in no error.
func (p *process) GetCredentials() (*providers.Credentials, error) {
	if time.Now().Before(p.until) {
		return p.last, nil
	}
	var args []string
	for _, m := range word.FindAllStringSubmatch(p.command, -1) {
		if m[1]+m[2] != "" || m[0] == `""` || m[0] == "''" {
			m[0] = m[1] + m[2]
		}
		args = append(args, m[0])
	}
	if len(args) == 0 {
		return nil, errors.New("the profile has no process_command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.within)
	defer cancel()
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.WaitDelay = childrenTime
	output, err := command.Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the process_command %s has not ended within %s", args[0], p.within)
	}
	if err != nil {
		return nil, fmt.Errorf("the process_command %s: %w; run it to see what it says", args[0], err)
	}
	var answer struct {
		ID         string `json:"access_key_id"`
		Secret     string `json:"access_key_secret"`
		Token      string `json:"sts_token"`
		Expiration string `json:"expiration"`
	}
	if json.Unmarshal(output, &answer) != nil || answer.ID == "" || answer.Secret == "" {
		return nil, fmt.Errorf("the process_command %s prints no credentials: nothing but a JSON object with access_key_id, access_key_secret and, for temporary ones, sts_token and expiration", args[0])
	}
	p.last = &providers.Credentials{AccessKeyId: answer.ID, AccessKeySecret: answer.Secret, SecurityToken: answer.Token, ProviderName: p.GetProviderName()}
	if p.until, err = time.Parse(time.RFC3339, answer.Expiration); err == nil {
		p.until = p.until.Add(-renewal)
	}
	return p.last, nil
}
