// Package absent is what Terraform for tests has in place of each state backend of a cloud.
package absent

import "github.com/hashicorp/terraform/internal/backend"

// New panics: no test keeps its state in a cloud.
func New() backend.Backend { panic("this Terraform is for tests, and has no state backends of clouds") }
