package program

import (
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// ImageName checks the name of a program's image.
func ImageName() validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^[\w./:@-]+$`), "must be the name of an image, such as registry.example/gpuplan:1.0, without spaces")
}
