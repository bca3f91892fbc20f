// Command terraform-provider-gpuplan is the Terraform provider, which Terraform
// starts; see the documentation of the provider for its use.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/command"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
)

// version is set by the linker on release.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "wait for a debugger and for Terraform to attach")
	flag.Parse()
	var options []tf6server.ServeOpt
	destroys := false
	if *debug {
		options = append(options, tf6server.WithManagedDebug())
	} else {
		destroys = command.Destroys()
		go endWithTerraform()
	}
	err := tf6server.Serve("registry.terraform.io/gpuplan/gpuplan", func() tfprotov6.ProviderServer {
		return server.New(provider.New(version)(), destroys)
	}, options...)
	if err != nil {
		log.Fatal(err)
	}
}

// endWithTerraform ends the provider when the command that started it has gone without
// ending it, as a killed one does. Nobody is left to take an answer, or to be told.
func endWithTerraform() {
	command.Wait()
	os.Exit(1)
}
