package main

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
	nodeagent "github.com/gpuplan/terraform-provider-gpuplan/nodeagent/deploy"
	scheduler "github.com/gpuplan/terraform-provider-gpuplan/scheduler/deploy"
)

// The parts of the chart that are written by hand.
var (
	//go:embed files/Chart.yaml
	chartYAML string
	//go:embed files/values.yaml
	valuesYAML string
	//go:embed files/values.schema.json
	schemaJSON string
	//go:embed files/NOTES.txt
	notes string
)

// Options that cannot be anything else in a manifest: what they became is where the
// chart's values go.
const (
	markImage    = "mark.invalid/image"
	markReplicas = 7000001
	markLogLevel = 7000002
	markPort     = 7000003
	markDuration = 7004 * time.Hour
	markReserve  = 7005 * time.Hour
	markStale    = 7006 * time.Hour
	// markResources stands for the resources of a container.
	markResources = "MARK-RESOURCES"
	// markHash stands for the hash of the configuration.
	markHash = "MARK-HASH"
)

// generated heads every file of the chart.
const generated = "# Generated from the manifests by `make generate`.\n"

// render returns the chart's files by name.
func render() (map[string]string, error) {
	files := map[string]string{
		"Chart.yaml": chartYAML, "values.schema.json": schemaJSON, "templates/NOTES.txt": notes, "values.yaml": valuesYAML,
	}
	parts := []struct {
		value   string
		objects func() ([]*unstructured.Unstructured, error)
		marks   []string
	}{
		{"scheduler", func() ([]*unstructured.Unstructured, error) {
			return scheduler.Objects(scheduler.Options{
				Image: markImage, Replicas: markReplicas, LogLevel: markLogLevel, Port: markPort, UnreachableGrace: markDuration, RoutePods: true,
				ReserveAfter: markReserve, StaleAfter: markStale,
			})
		}, []string{
			strconv.Itoa(markReplicas), "{{ int .Values.scheduler.replicas }}",
			strconv.Itoa(markLogLevel), "{{ int .Values.scheduler.logLevel }}",
			strconv.Itoa(markPort), "{{ int .Values.scheduler.port }}",
			strconv.Itoa(markPort + 1), "{{ add1 .Values.scheduler.port }}",
			markDuration.String(), "{{ .Values.scheduler.unreachableGrace }}",
			markReserve.String(), "{{ .Values.scheduler.reserveAfter }}",
			markStale.String(), "{{ .Values.scheduler.staleAfter }}",
			contract.RoutePodsAnnotation + `: "true"`, contract.RoutePodsAnnotation + ": {{ .Values.scheduler.routePods | quote }}",
		}},
		{"nodeAgent", func() ([]*unstructured.Unstructured, error) {
			return nodeagent.Objects(nodeagent.Options{Image: markImage, Interval: markDuration, MetricsPort: markPort})
		}, []string{
			strconv.Itoa(markPort), "{{ int .Values.nodeAgent.metricsPort }}",
			markDuration.String(), "{{ .Values.nodeAgent.interval }}",
		}},
	}
	for _, part := range parts {
		objects, err := part.objects()
		if err != nil {
			return nil, err
		}
		if err := addPart(files, part.value, objects, part.marks); err != nil {
			return nil, fmt.Errorf("%s: %w", part.value, err)
		}
	}
	return files, nil
}

// addPart adds the files of one part of the chart: its custom resources, its objects,
// and what its container asks for as default values.
func addPart(files map[string]string, value string, objects []*unstructured.Unstructured, marks []string) error {
	var documents, configs, routing []string
	for _, object := range objects {
		switch object.GetKind() {
		case "Namespace":
			if object.GetName() == contract.SystemNamespace { // the release's, which helm makes
				continue
			}
		case "CustomResourceDefinition":
			object.SetLabels(nil)
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			files["crds/"+object.GetName()+".yaml"] = generated + string(text)
			continue
		case "Deployment", "DaemonSet":
			resources, err := takeResources(object)
			if err != nil {
				return err
			}
			files["values.yaml"] = strings.Replace(files["values.yaml"], "{"+object.GetName()+"}", indented(resources, 4), 1)
		}
		document, err := template(value, object, marks)
		if err != nil {
			return err
		}
		if object.GetName() == contract.RoutePolicyName {
			routing = append(routing, strings.Replace(document, policyGroup+"v1\n", policyGroup+"{{ $version }}\n", 1))
			continue
		}
		if object.GetKind() == "ConfigMap" {
			configs = append(configs, document)
			continue
		}
		documents = append(documents, document)
	}
	hash := fmt.Sprintf("toJson .Values.%s", value)
	if len(configs) > 0 {
		files["templates/"+value+"-config.yaml"] = enabled(value, configs)
		hash = fmt.Sprintf(`include (print $.Template.BasePath "/%s-config.yaml") .`, value)
	}
	if len(routing) > 0 {
		files["templates/"+value+"-routing.yaml"] = generated + servedVersion +
			"{{- if and .Values.scheduler.enabled .Values.scheduler.routePods $version }}\n" + strings.Join(routing, "---\n") + "{{- end }}\n"
	}
	files["templates/"+value+".yaml"] = strings.ReplaceAll(enabled(value, documents), markHash, "{{ "+hash+" | sha256sum | trunc 16 }}")
	return nil
}

// servedVersion finds the version in which the cluster has mutating admission policies,
// if it has them.
const (
	policyGroup   = "admissionregistration.k8s.io/"
	servedVersion = `{{- $version := "" }}
{{- range list "v1beta1" "v1" }}
{{- if $.Capabilities.APIVersions.Has (print "` + policyGroup + `" . "/MutatingAdmissionPolicy") }}{{ $version = . }}{{ end }}
{{- end }}
`
)

// enabled is a file of the chart with the objects of a part that may be switched off.
func enabled(value string, documents []string) string {
	return fmt.Sprintf("%s{{- if .Values.%s.enabled }}\n%s{{- end }}\n", generated, value, strings.Join(documents, "---\n"))
}

// takeResources returns the resources of a workload's container, and marks their place.
func takeResources(workload *unstructured.Unstructured) (string, error) {
	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return "", errors.New("the workload has not one container")
	}
	container, _ := containers[0].(map[string]any)
	text, err := yaml.Marshal(container["resources"])
	if err != nil {
		return "", err
	}
	container["resources"] = markResources
	return string(text), unstructured.SetNestedSlice(workload.Object, containers, "spec", "template", "spec", "containers")
}

// resourcesOf is the value with the resources of a workload.
var resourcesOf = map[string]string{
	contract.SchedulerName: "scheduler", contract.QueueControllerName: "queue", contract.NodeAgentName: "nodeAgent",
}

var resourcesLine = regexp.MustCompile(`(?m)^( *)resources: ` + markResources + `$`)

// template turns an object into a template.
func template(value string, object *unstructured.Unstructured, marks []string) (string, error) {
	hash, _, err := unstructured.NestedString(object.Object, "spec", "template", "metadata", "annotations", contract.ConfigHashAnnotation)
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		return "", err
	}
	// Text that looks like a template is none.
	out := strings.ReplaceAll(string(text), "{{", "{{ `{{` }}")
	if hash != "" {
		out = strings.Replace(out, ": "+hash, ": "+markHash, 1)
	}
	out = resourcesLine.ReplaceAllStringFunc(out, func(line string) string {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		return fmt.Sprintf("%sresources: {{- toYaml .Values.%s.resources | nindent %d }}", line[:indent], resourcesOf[object.GetName()], indent+2)
	})
	return strings.NewReplacer(append([]string{
		markImage, fmt.Sprintf(`{{ required "%s.image is required" .Values.%[1]s.image }}`, value),
		contract.ManagedByLabel + ": " + contract.ManagedByValue, contract.ManagedByLabel + ": {{ .Release.Service }}",
		contract.SystemNamespace, "{{ .Release.Namespace }}",
	}, marks...)...).Replace(out), nil
}

// indented puts spaces before every line.
func indented(text string, spaces int) string {
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+pad)
}
