package provider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/gpuplan/terraform-provider-gpuplan/internal/acs/identity"
	"github.com/gpuplan/terraform-provider-gpuplan/internal/provider/session"
)

// variables are the environment variables in place of attributes, the first that is set
// counts: those of the alicloud provider in its order, then the provider's own.
var variables = map[string][]string{
	session.Region:                {"ALICLOUD_REGION", "ALIBABA_CLOUD_REGION", "ALIBABA_CLOUD_REGION_ID"},
	session.AccessKey:             {"ALICLOUD_ACCESS_KEY", "ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABACLOUD_ACCESS_KEY_ID"},
	session.SecretKey:             {"ALICLOUD_SECRET_KEY", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABACLOUD_ACCESS_KEY_SECRET"},
	session.SecurityToken:         {"ALICLOUD_SECURITY_TOKEN", "ALIBABA_CLOUD_SECURITY_TOKEN", "ALIBABACLOUD_SECURITY_TOKEN"},
	session.Profile:               {"ALICLOUD_PROFILE", "ALIBABA_CLOUD_PROFILE"},
	session.SharedCredentialsFile: {"ALICLOUD_SHARED_CREDENTIALS_FILE", "ALIBABA_CLOUD_CREDENTIALS_FILE"},
	session.CredentialsURI:        {"ALICLOUD_CREDENTIALS_URI", "ALIBABA_CLOUD_CREDENTIALS_URI"},
	session.ECSRoleName:           {"ALICLOUD_ECS_ROLE_NAME", "ALIBABA_CLOUD_ECS_METADATA"},
	session.STSEndpoint:           {"ALIBABA_CLOUD_ENDPOINT_STS", "STS_ENDPOINT"},
	session.Endpoint:              {"GPUPLAN_CS_ENDPOINT", "ALIBABA_CLOUD_ENDPOINT_CS", "CS_ENDPOINT"},
	session.ClusterID:             {"GPUPLAN_CLUSTER_ID"},
	session.KubeContext:           {"GPUPLAN_KUBE_CONTEXT"},
	session.PlacementCheck:        {"GPUPLAN_PLACEMENT_CHECK"},

	role("role_arn"):           {"ALICLOUD_ASSUME_ROLE_ARN", "ALIBABA_CLOUD_ROLE_ARN"},
	role("session_name"):       {"ALICLOUD_ASSUME_ROLE_SESSION_NAME", "ALIBABA_CLOUD_ROLE_SESSION_NAME"},
	role("session_expiration"): {"ALICLOUD_ASSUME_ROLE_SESSION_EXPIRATION"},
	oidc("oidc_provider_arn"):  {"ALIBABA_CLOUD_OIDC_PROVIDER_ARN"},
	oidc("oidc_token_file"):    {"ALIBABA_CLOUD_OIDC_TOKEN_FILE"},
	oidc("oidc_token"):         {"ALIBABA_CLOUD_OIDC_TOKEN"},
	oidc("role_arn"):           {"ALIBABA_CLOUD_ROLE_ARN"},
	oidc("role_session_name"):  {"ALIBABA_CLOUD_ROLE_SESSION_NAME"},
}

func role(attribute string) string { return session.AssumeRole + "." + attribute }
func oidc(attribute string) string { return session.AssumeRoleWithOIDC + "." + attribute }

// fromEnvironment is the value of the first variable in place of an attribute that is set.
func fromEnvironment(attribute string) string {
	var value string
	for _, name := range variables[attribute] {
		value = cmp.Or(value, os.Getenv(name))
	}
	return value
}

// environment says in a description which variables stand in for an attribute.
func environment(attribute string) string {
	return " Environment: `" + strings.Join(variables[attribute], "`, `") + "`."
}

// setting is a text of the configuration, and where it goes.
type setting struct {
	attribute string
	value     types.String
	to        *string
}

// readAll reads settings, from the environment where the configuration says nothing, and
// returns those that are unknown.
func readAll(settings []setting) (unknown []string) {
	for _, s := range settings {
		switch {
		case s.value.IsUnknown():
			unknown = append(unknown, s.attribute)
		case s.value.IsNull():
			*s.to = fromEnvironment(s.attribute)
		default:
			*s.to = s.value.ValueString()
		}
	}
	return unknown
}

type credentials struct {
	AccessKey             types.String `tfsdk:"access_key"`
	SecretKey             types.String `tfsdk:"secret_key"`
	SecurityToken         types.String `tfsdk:"security_token"`
	Profile               types.String `tfsdk:"profile"`
	SharedCredentialsFile types.String `tfsdk:"shared_credentials_file"`
	CredentialsURI        types.String `tfsdk:"credentials_uri"`
	ECSRoleName           types.String `tfsdk:"ecs_role_name"`
	STSEndpoint           types.String `tfsdk:"sts_endpoint"`
	AssumeRole            types.Object `tfsdk:"assume_role"`
	AssumeRoleWithOIDC    types.Object `tfsdk:"assume_role_with_oidc"`
}

type assumeRole struct {
	RoleARN           types.String `tfsdk:"role_arn"`
	SessionName       types.String `tfsdk:"session_name"`
	Policy            types.String `tfsdk:"policy"`
	SessionExpiration types.Int64  `tfsdk:"session_expiration"`
	ExternalID        types.String `tfsdk:"external_id"`
}

type assumeRoleWithOIDC struct {
	ProviderARN       types.String `tfsdk:"oidc_provider_arn"`
	TokenFile         types.String `tfsdk:"oidc_token_file"`
	Token             types.String `tfsdk:"oidc_token"`
	RoleARN           types.String `tfsdk:"role_arn"`
	SessionName       types.String `tfsdk:"role_session_name"`
	Policy            types.String `tfsdk:"policy"`
	SessionExpiration types.Int64  `tfsdk:"session_expiration"`
}

func credentialsAttributes() map[string]schema.Attribute {
	text := func(attribute, description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description + environment(attribute), Optional: true}
	}
	secret := func(attribute, description string) schema.StringAttribute {
		a := text(attribute, description)
		a.Sensitive = true
		return a
	}
	return map[string]schema.Attribute{
		session.AccessKey:     text(session.AccessKey, "Access key ID for the Container Service API."),
		session.SecretKey:     secret(session.SecretKey, "Access key secret."),
		session.SecurityToken: secret(session.SecurityToken, "Security token of a temporary access key."),
		session.Profile: text(session.Profile, "Profile of the `aliyun` command to take credentials, and the region where nothing else names it, from: any mode that the command knows. "+
			"Without it the current one of the file."),
		session.SharedCredentialsFile: text(session.SharedCredentialsFile, "File with profiles; without it `~/.aliyun/config.json`."),
		session.CredentialsURI:        text(session.CredentialsURI, "URI that answers with temporary credentials, of a sidecar for example."),
		session.ECSRoleName:           text(session.ECSRoleName, "RAM role of the ECS instance that Terraform runs on."),
		session.STSEndpoint: text(session.STSEndpoint, "Host of the Security Token Service, which roles are assumed at, such as `sts-vpc.cn-hangzhou.aliyuncs.com`; "+
			"without it that of `ALIBABA_CLOUD_STS_REGION`, in the VPC with `ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED`, else `sts.aliyuncs.com`."),
	}
}

func credentialsBlocks() map[string]schema.Block {
	text := func(attribute, description string) schema.StringAttribute {
		if variables[attribute] != nil {
			description += environment(attribute)
		}
		return schema.StringAttribute{MarkdownDescription: description, Optional: true}
	}
	seconds := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{
			MarkdownDescription: description, Optional: true,
			Validators: []validator.Int64{int64validator.Between(900, 43200)},
		}
	}
	policy := schema.StringAttribute{MarkdownDescription: "Policy in JSON that narrows the rights of the role for this session.", Optional: true}
	token := text(oidc("oidc_token"), "The token itself, instead of a file; credentials then last as long as the token is good for new ones.")
	token.Sensitive = true
	return map[string]schema.Block{
		session.AssumeRole: schema.SingleNestedBlock{
			MarkdownDescription: "RAM role to assume with the credentials that the other settings give.",
			Attributes: map[string]schema.Attribute{
				"role_arn":           text(role("role_arn"), "ARN of the role; required."),
				"session_name":       text(role("session_name"), "Name of the session in audit logs (default `terraform`)."),
				"policy":             policy,
				"session_expiration": seconds("Seconds that credentials last before they are renewed, 900 to 43200 (default 3600)." + environment(role("session_expiration"))),
				"external_id":        text(role("external_id"), "External ID that the role's trust policy asks for."),
			},
		},
		session.AssumeRoleWithOIDC: schema.SingleNestedBlock{
			MarkdownDescription: "RAM role to assume with a token of an OIDC provider, such as that of a service account in ACK (RRSA). Where the environment has the provider's ARN, " +
				"the role's ARN and a token file, as in such a pod, the block is not needed.",
			Attributes: map[string]schema.Attribute{
				"oidc_provider_arn":  text(oidc("oidc_provider_arn"), "ARN of the OIDC provider in RAM; required."),
				"oidc_token_file":    text(oidc("oidc_token_file"), "File with the token; it is read again for each renewal."),
				"oidc_token":         token,
				"role_arn":           text(oidc("role_arn"), "ARN of the role; required."),
				"role_session_name":  text(oidc("role_session_name"), "Name of the session in audit logs (default `terraform`)."),
				"policy":             policy,
				"session_expiration": seconds("Seconds that credentials last before they are renewed, 900 to 43200 (default 3600)."),
			},
		},
	}
}

// read returns what the configuration and the environment say of credentials, and which
// attributes are unknown.
func (c credentials) read(ctx context.Context, diags *diag.Diagnostics) (identity.Settings, []string) {
	var s identity.Settings
	unknown := readAll([]setting{
		{session.AccessKey, c.AccessKey, &s.AccessKey},
		{session.SecretKey, c.SecretKey, &s.SecretKey},
		{session.SecurityToken, c.SecurityToken, &s.SecurityToken},
		{session.Profile, c.Profile, &s.Profile},
		{session.SharedCredentialsFile, c.SharedCredentialsFile, &s.SharedCredentialsFile},
		{session.CredentialsURI, c.CredentialsURI, &s.CredentialsURI},
		{session.ECSRoleName, c.ECSRoleName, &s.ECSRoleName},
		{session.STSEndpoint, c.STSEndpoint, &s.STSEndpoint},
	})
	within := func(block string, isUnknown bool, settings []setting) {
		if isUnknown || len(readAll(settings)) > 0 {
			unknown = append(unknown, block)
		}
	}
	if !c.AssumeRole.IsNull() {
		var block assumeRole
		s.Role = &identity.Role{}
		diags.Append(c.AssumeRole.As(ctx, &block, basetypes.ObjectAsOptions{UnhandledUnknownAsEmpty: true})...)
		within(session.AssumeRole, c.AssumeRole.IsUnknown() || block.SessionExpiration.IsUnknown(), []setting{
			{role("role_arn"), block.RoleARN, &s.Role.ARN},
			{role("session_name"), block.SessionName, &s.Role.SessionName},
			{role("policy"), block.Policy, &s.Role.Policy},
			{role("external_id"), block.ExternalID, &s.Role.ExternalID},
		})
		s.Role.Seconds = seconds(block.SessionExpiration, diags)
	}
	if c.AssumeRoleWithOIDC.IsNull() {
		s.OIDC = podRole()
	} else {
		var block assumeRoleWithOIDC
		s.OIDC = &identity.OIDC{}
		diags.Append(c.AssumeRoleWithOIDC.As(ctx, &block, basetypes.ObjectAsOptions{UnhandledUnknownAsEmpty: true})...)
		within(session.AssumeRoleWithOIDC, c.AssumeRoleWithOIDC.IsUnknown() || block.SessionExpiration.IsUnknown(), []setting{
			{oidc("role_arn"), block.RoleARN, &s.OIDC.ARN},
			{oidc("role_session_name"), block.SessionName, &s.OIDC.SessionName},
			{oidc("policy"), block.Policy, &s.OIDC.Policy},
			{oidc("oidc_provider_arn"), block.ProviderARN, &s.OIDC.ProviderARN},
			{oidc("oidc_token_file"), block.TokenFile, &s.OIDC.TokenFile},
			{oidc("oidc_token"), block.Token, &s.OIDC.Token},
		})
		s.OIDC.Seconds = int(block.SessionExpiration.ValueInt64())
	}
	c.check(s, unknown, diags)
	return s, unknown
}

// podRole is the role that ACK gives a pod by its service account (RRSA), nil for none.
func podRole() *identity.OIDC {
	var o identity.OIDC
	readAll([]setting{
		{oidc("role_arn"), types.StringNull(), &o.ARN},
		{oidc("role_session_name"), types.StringNull(), &o.SessionName},
		{oidc("oidc_provider_arn"), types.StringNull(), &o.ProviderARN},
		{oidc("oidc_token_file"), types.StringNull(), &o.TokenFile},
	})
	if o.ARN == "" || o.ProviderARN == "" || o.TokenFile == "" {
		return nil
	}
	return &o
}

// seconds is how long a session of assume_role lasts, 0 for the default.
func seconds(configured types.Int64, diags *diag.Diagnostics) int {
	text := fromEnvironment(role("session_expiration"))
	if !configured.IsNull() || text == "" {
		return int(configured.ValueInt64())
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 900 || n > 43200 {
		diags.AddAttributeError(path.Root(session.AssumeRole).AtName("session_expiration"), "Invalid session expiration",
			fmt.Sprintf("The environment variable %s is %q; it must be 900 to 43200 seconds.", variables[role("session_expiration")][0], text))
	}
	return n
}

// check finds what is missing, and what the configuration says in vain because an access key of
// the environment goes before it, as it does for the alicloud provider.
func (c credentials) check(s identity.Settings, unknown []string, diags *diag.Diagnostics) {
	missing := map[string]path.Path{}
	if r := s.Role; r != nil && !slices.Contains(unknown, session.AssumeRole) && r.ARN == "" {
		missing[role("role_arn")] = path.Root(session.AssumeRole)
	}
	if o := s.OIDC; o != nil && !slices.Contains(unknown, session.AssumeRoleWithOIDC) {
		for attribute, value := range map[string]string{"role_arn": o.ARN, "oidc_provider_arn": o.ProviderARN, "oidc_token_file": o.TokenFile + o.Token} {
			if value == "" {
				missing[oidc(attribute)] = path.Root(session.AssumeRoleWithOIDC)
			}
		}
	}
	for _, attribute := range slices.Sorted(maps.Keys(missing)) {
		_, name, _ := strings.Cut(attribute, ".")
		diags.AddAttributeError(missing[attribute], "Role to assume is not complete",
			fmt.Sprintf("%s is missing: set it here, or the environment variable %s.", name, strings.Join(variables[attribute], " or ")))
	}
	if s.AccessKey == "" || s.SecretKey == "" || !c.AccessKey.IsNull() {
		return
	}
	for attribute, set := range map[string]bool{
		session.Profile: !c.Profile.IsNull(), session.SharedCredentialsFile: !c.SharedCredentialsFile.IsNull(), session.CredentialsURI: !c.CredentialsURI.IsNull(),
		session.ECSRoleName: !c.ECSRoleName.IsNull(), session.AssumeRoleWithOIDC: !c.AssumeRoleWithOIDC.IsNull(),
	} {
		if set {
			diags.AddAttributeWarning(path.Root(attribute), "Credentials of the environment go first",
				fmt.Sprintf("The environment has the access key %s (%s), which is used instead of %s. Unset it to use what is written here.",
					s.AccessKey, strings.Join(variables[session.AccessKey], ", "), attribute))
		}
	}
}
