// Package planfile reads what a plan that Terraform has saved keeps for the provider that made it. An apply
// of the plan does not hand it on where something is created: it plans once more.
package planfile

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Where a plan has it: https://github.com/hashicorp/terraform/blob/v1.11.4/internal/plans/planproto/planfile.proto
const (
	planName        = "tfplan"
	resourceChanges = 3  // of Plan
	private         = 10 // of ResourceInstanceChange
)

// Private returns the private data of all changes in a plan file, whichever provider's they are.
func Private(file string) (all [][]byte, err error) {
	archive, err := zip.OpenReader(file)
	if err != nil {
		return nil, fmt.Errorf("open plan %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	content, err := archive.Open(planName)
	if err != nil {
		return nil, fmt.Errorf("open plan %s: %w", file, err)
	}
	plan, err := io.ReadAll(content)
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", file, err)
	}
	changes, err := fields(plan, resourceChanges)
	for _, change := range changes {
		var data [][]byte
		if data, err = fields(change, private); err != nil {
			break
		}
		all = append(all, data...)
	}
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", file, err)
	}
	return all, nil
}

// fields returns the values of a field of a message that are bytes.
func fields(message []byte, number protowire.Number) (values [][]byte, err error) {
	for len(message) > 0 {
		n, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		message = message[length:]
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			values = append(values, value)
		}
		if length = protowire.ConsumeFieldValue(n, kind, message); length < 0 {
			return nil, protowire.ParseError(length)
		}
		message = message[length:]
	}
	return values, nil
}
