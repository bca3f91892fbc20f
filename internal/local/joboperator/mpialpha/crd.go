package mpialpha

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// CRDName is the name of the CRD of all versions of MPIJob.
const CRDName = "mpijobs.kubeflow.org"

// AddTo adds the version to the CRD of MPIJob. An object has one of two shapes, and its
// version is only the name under which it is asked for: nothing is converted, so no
// version may drop what it does not know, or require what the other shape lacks. The garbage
// collector, for one, asks for all of them in the same version.
func AddTo(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		properties := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties
		for _, name := range []string{"spec", "status"} {
			part := properties[name]
			part.XPreserveUnknownFields = ptr.To(true)
			part.Required = nil
			properties[name] = part
		}
	}
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
		Name:   version,
		Served: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type:       "object",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			{Name: "State", Type: "string", JSONPath: ".status.launcherStatus"},
		},
	})
}
