// Command terraform-provider-gpuplan is the Terraform provider, which Terraform
// starts; see the documentation of the provider for its use.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/debug"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/command"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/server"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/sibling"
)

// version is set by the linker on release.
var version = "dev"

func main() {
	attach := flag.Bool("debug", false, "wait for a debugger and for Terraform to attach")
	showVersion := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *showVersion {
		fmt.Println("terraform-provider-gpuplan", version)
		return
	}
	quiet()
	debug.SetGCPercent(collectAt)
	debug.SetMemoryLimit(collectBelow)
	var options []tf6server.ServeOpt
	var started server.Command
	var by provider.Command
	if *attach {
		options = append(options, tf6server.WithManagedDebug())
	} else {
		by.Targets, by.Tests, by.Applies, by.Parallelism = command.Targets(), command.Tests(), command.Applies(), command.Parallelism()
		by.Refreshes = command.Refreshes()
		started = server.Command{Destroys: command.Destroys(), Plan: command.Plan()}
		// A destroy is never refused, a saved plan was when it was made, and the state of tests is theirs alone.
		if !started.Destroys && started.Plan == "" && !by.Tests {
			by.Siblings = sibling.New()
			if by.Applies {
				started.Notes = by.Siblings
			}
		}
		go endWithTerraform(os.Getppid())
	}
	err := tf6server.Serve("registry.terraform.io/gpuplan/gpuplan", func() tfprotov6.ProviderServer {
		return server.New(provider.New(version, by)(), started)
	}, options...)
	by.Siblings.Leave()
	if err != nil {
		log.Fatal(err)
	}
}

// collectAt is how much the heap grows, in percent, before garbage is collected: the
// provider of a large plan makes much of it, uses little memory, and ends soon.
const collectAt = 400

// collectBelow is the memory, in bytes, near which garbage is collected however little the
// heap has grown. What is in use may be more.
const collectBelow = 384 << 20

// quiet keeps the SDK from writing down each step with each attribute when nobody has
// asked for a log: Terraform would throw it away.
func quiet() {
	for _, name := range []string{"TF_LOG", "TF_LOG_PROVIDER", "TF_LOG_SDK", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_SDK_PROTO"} {
		if os.Getenv(name) != "" {
			return
		}
	}
	for _, name := range []string{"TF_LOG_SDK", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_SDK_PROTO"} {
		if err := os.Setenv(name, "OFF"); err != nil {
			log.Fatal(err)
		}
	}
}

// endWithTerraform ends the provider when the command that started it has gone without
// ending it, as a killed one does. Nobody is left to take an answer, or to be told.
func endWithTerraform(parent int) {
	command.Wait(parent)
	os.Exit(1)
}
