// Command terraform-provider-gpuplan is the Terraform provider, which Terraform
// starts; see the documentation of the provider for its use.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
)

// version is set by the linker on release.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger and for Terraform to attach")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: "registry.terraform.io/gpuplan/gpuplan",
		Debug:   *debug,
	})
	if err != nil {
		log.Fatal(err)
	}
}
