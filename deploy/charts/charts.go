// Package charts holds the Helm chart of the scheduler and the node agent, and renders
// the same templates for those who install them without Helm.
package charts

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamldocuments "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/contract"
)

//go:embed all:gpuplan
var files embed.FS

// Values are values of the chart by section, such as "scheduler".
type Values map[string]map[string]any

// Program is a program of the chart.
type Program struct {
	// Name is that of its workload.
	Name string
	// CRDs are the names of its custom resource definitions.
	CRDs []string
	// Templates are the files of its other objects, in their order.
	Templates []string
}

// Objects returns the objects of the program: the namespace, its CRDs, and those of its
// templates, all with [contract.ManagedByLabel]. Values that are not given are the chart's.
func (p Program) Objects(given Values) ([]*unstructured.Unstructured, error) {
	objs := []*unstructured.Unstructured{namespace()}
	for _, name := range p.CRDs {
		text, err := files.ReadFile("gpuplan/crds/" + name + ".yaml")
		if err != nil {
			return nil, err
		}
		crd, err := decode(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("decode the CRD %s: %w", name, err)
		}
		for _, obj := range crd {
			// Helm gives CRDs no labels.
			obj.SetLabels(map[string]string{
				contract.PartOfLabel: contract.PartOfValue, contract.ManagedByLabel: contract.ManagedByValue, contract.NameLabel: p.Name,
			})
		}
		objs = append(objs, crd...)
	}
	templates, err := parsed()
	if err != nil {
		return nil, fmt.Errorf("parse the chart: %w", err)
	}
	scope, err := scopeOf(given)
	if err != nil {
		return nil, err
	}
	for _, name := range p.Templates {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, name, scope); err != nil {
			return nil, fmt.Errorf("render the chart: %w", err)
		}
		more, err := decode(&text)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		objs = append(objs, more...)
	}
	return objs, nil
}

// namespace is the one that Helm makes for a release.
func namespace() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	obj.SetName(contract.SystemNamespace)
	obj.SetLabels(map[string]string{contract.PartOfLabel: contract.PartOfValue, contract.ManagedByLabel: contract.ManagedByValue})
	return obj
}

// parsed are the chart's templates with the functions that they have in Helm.
var parsed = sync.OnceValues(func() (*template.Template, error) {
	all := template.New("chart").Option("missingkey=error").Funcs(sprig.HermeticTxtFuncMap())
	all.Funcs(template.FuncMap{
		"include": func(name string, scope any) (string, error) {
			var text strings.Builder
			err := all.ExecuteTemplate(&text, name, scope)
			return text.String(), err
		},
		"required": func(message string, value any) (any, error) {
			if value == nil || value == "" {
				return nil, errors.New(message)
			}
			return value, nil
		},
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	})
	names, err := fs.Glob(files, "gpuplan/templates/*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if _, err := all.New(path.Base(name)).Parse(string(text)); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// versions are versions of APIs that a cluster serves.
type versions []string

// Has tells whether the cluster serves an API, as in Helm.
func (v versions) Has(version string) bool { return slices.Contains(v, version) }

// scopeOf is what the templates see: the chart's values with those that are given, a
// release that is ours, and a cluster of the newest version. Whoever applies the objects
// finds the versions that are served.
func scopeOf(given Values) (map[string]any, error) {
	text, err := files.ReadFile("gpuplan/values.yaml")
	if err != nil {
		return nil, err
	}
	values := Values{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("decode the chart's values: %w", err)
	}
	for section, set := range given {
		maps.Copy(values[section], set)
	}
	return map[string]any{
		"Values":       values,
		"Release":      map[string]any{"Namespace": contract.SystemNamespace, "Service": contract.ManagedByValue},
		"Capabilities": map[string]any{"APIVersions": versions{"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"}},
	}, nil
}

// decode reads objects from YAML.
func decode(text io.Reader) (objs []*unstructured.Unstructured, err error) {
	decoder := yamldocuments.NewYAMLOrJSONDecoder(text, 4096)
	for {
		var document runtime.RawExtension
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objs, nil
		} else if err != nil {
			return nil, err
		}
		if len(document.Raw) == 0 { // comments
			continue
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(document.Raw); err != nil {
			return nil, err
		}
		objs = append(objs, obj)
	}
}
