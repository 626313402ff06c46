//! Conversions of messages whose fields have the same names in both protobuf packages.

/// Implements the conversions of tasks, artifacts and artifact events. The invoking module must
/// implement those of their members.
macro_rules! impl_task_conversions {
    ($proto:ident) => {
        impl From<&$crate::model::Task> for $proto::Task {
            fn from(task: &$crate::model::Task) -> Self {
                Self {
                    id: task.id.to_string(),
                    context_id: task.context_id.to_string(),
                    status: Some((&task.status).into()),
                    artifacts: $crate::wire::proto::write_list(&task.artifacts),
                    history: task
                        .history
                        .iter()
                        .map(|message| message.as_ref().into())
                        .collect(),
                    metadata: task.metadata.as_ref().map(Into::into),
                }
            }
        }

        impl TryFrom<$proto::Task> for $crate::model::Task {
            type Error = $crate::model::Error;

            fn try_from(task: $proto::Task) -> Result<Self, Self::Error> {
                let history: Vec<$crate::model::Message> =
                    $crate::wire::proto::read_list("history", task.history)?;
                Ok(Self {
                    id: task.id.into(),
                    context_id: task.context_id.into(),
                    status: $crate::wire::proto::read_or_default("status", task.status)?,
                    artifacts: $crate::wire::proto::read_list("artifacts", task.artifacts)?,
                    history: history.into_iter().map(Into::into).collect(),
                    metadata: $crate::wire::proto::read_option("metadata", task.metadata)?,
                })
            }
        }

        impl From<&$crate::model::Artifact> for $proto::Artifact {
            fn from(artifact: &$crate::model::Artifact) -> Self {
                Self {
                    artifact_id: artifact.artifact_id.to_string(),
                    name: $crate::wire::proto::or_empty(artifact.name.as_ref()),
                    description: $crate::wire::proto::or_empty(artifact.description.as_ref()),
                    parts: $crate::wire::proto::write_list(&artifact.parts),
                    metadata: artifact.metadata.as_ref().map(Into::into),
                    extensions: artifact.extensions.clone(),
                }
            }
        }

        impl TryFrom<$proto::Artifact> for $crate::model::Artifact {
            type Error = $crate::model::Error;

            fn try_from(artifact: $proto::Artifact) -> Result<Self, Self::Error> {
                Ok(Self {
                    artifact_id: artifact.artifact_id.into(),
                    name: $crate::wire::proto::non_empty(artifact.name),
                    description: $crate::wire::proto::non_empty(artifact.description),
                    parts: $crate::wire::proto::read_list("parts", artifact.parts)?,
                    metadata: $crate::wire::proto::read_option("metadata", artifact.metadata)?,
                    extensions: artifact.extensions,
                })
            }
        }

        impl From<&$crate::model::TaskArtifactUpdateEvent> for $proto::TaskArtifactUpdateEvent {
            fn from(event: &$crate::model::TaskArtifactUpdateEvent) -> Self {
                Self {
                    task_id: event.task_id.to_string(),
                    context_id: event.context_id.to_string(),
                    artifact: Some((&event.artifact).into()),
                    append: event.append,
                    last_chunk: event.last_chunk,
                    metadata: event.metadata.as_ref().map(Into::into),
                }
            }
        }

        impl TryFrom<$proto::TaskArtifactUpdateEvent> for $crate::model::TaskArtifactUpdateEvent {
            type Error = $crate::model::Error;

            fn try_from(event: $proto::TaskArtifactUpdateEvent) -> Result<Self, Self::Error> {
                Ok(Self {
                    task_id: event.task_id.into(),
                    context_id: event.context_id.into(),
                    artifact: $crate::wire::proto::read_or_default("artifact", event.artifact)?,
                    append: event.append,
                    last_chunk: event.last_chunk,
                    metadata: $crate::wire::proto::read_option("metadata", event.metadata)?,
                })
            }
        }
    };
}

/// Implements the conversions of the card members that both packages have.
macro_rules! impl_card_conversions {
    ($proto:ident) => {
        impl From<&$crate::model::AgentProvider> for $proto::AgentProvider {
            fn from(provider: &$crate::model::AgentProvider) -> Self {
                Self {
                    url: provider.url.clone(),
                    organization: provider.organization.clone(),
                }
            }
        }

        impl From<$proto::AgentProvider> for $crate::model::AgentProvider {
            fn from(provider: $proto::AgentProvider) -> Self {
                Self {
                    url: provider.url,
                    organization: provider.organization,
                }
            }
        }

        impl From<&$crate::model::AgentExtension> for $proto::AgentExtension {
            fn from(extension: &$crate::model::AgentExtension) -> Self {
                Self {
                    uri: extension.uri.clone(),
                    description: $crate::wire::proto::or_empty(extension.description.as_ref()),
                    required: extension.required.unwrap_or_default(),
                    params: extension.params.as_ref().map(Into::into),
                }
            }
        }

        impl TryFrom<$proto::AgentExtension> for $crate::model::AgentExtension {
            type Error = $crate::model::Error;

            fn try_from(extension: $proto::AgentExtension) -> Result<Self, Self::Error> {
                Ok(Self {
                    uri: extension.uri,
                    description: $crate::wire::proto::non_empty(extension.description),
                    required: extension.required.then_some(true),
                    params: $crate::wire::proto::read_option("params", extension.params)?,
                })
            }
        }

        impl From<&$crate::model::AgentCardSignature> for $proto::AgentCardSignature {
            fn from(signature: &$crate::model::AgentCardSignature) -> Self {
                Self {
                    protected: signature.protected.clone(),
                    signature: signature.signature.clone(),
                    header: signature.header.as_ref().map(Into::into),
                }
            }
        }

        impl TryFrom<$proto::AgentCardSignature> for $crate::model::AgentCardSignature {
            type Error = $crate::model::Error;

            fn try_from(signature: $proto::AgentCardSignature) -> Result<Self, Self::Error> {
                Ok(Self {
                    protected: signature.protected,
                    signature: signature.signature,
                    header: $crate::wire::proto::read_option("header", signature.header)?,
                })
            }
        }

        impl From<&$crate::model::SecurityScheme> for $proto::SecurityScheme {
            fn from(scheme: &$crate::model::SecurityScheme) -> Self {
                use $crate::model::SecurityScheme as Model;
                use $crate::wire::proto::or_empty;
                use $proto::security_scheme::Scheme;
                let scheme = match scheme {
                    Model::ApiKey(scheme) => {
                        Scheme::ApiKeySecurityScheme($proto::ApiKeySecurityScheme {
                            description: or_empty(scheme.description.as_ref()),
                            location: scheme.location.clone(),
                            name: scheme.name.clone(),
                        })
                    }
                    Model::HttpAuth(scheme) => {
                        Scheme::HttpAuthSecurityScheme($proto::HttpAuthSecurityScheme {
                            description: or_empty(scheme.description.as_ref()),
                            scheme: scheme.scheme.clone(),
                            bearer_format: or_empty(scheme.bearer_format.as_ref()),
                        })
                    }
                    Model::OAuth2(scheme) => {
                        Scheme::Oauth2SecurityScheme($proto::OAuth2SecurityScheme {
                            description: or_empty(scheme.description.as_ref()),
                            flows: Some($proto::OAuthFlows {
                                flow: scheme.flows.as_ref().and_then(write_flow),
                            }),
                            oauth2_metadata_url: or_empty(scheme.oauth2_metadata_url.as_ref()),
                        })
                    }
                    Model::OpenIdConnect(scheme) => {
                        Scheme::OpenIdConnectSecurityScheme($proto::OpenIdConnectSecurityScheme {
                            description: or_empty(scheme.description.as_ref()),
                            open_id_connect_url: scheme.open_id_connect_url.clone(),
                        })
                    }
                    Model::MutualTls(scheme) => {
                        Scheme::MtlsSecurityScheme($proto::MutualTlsSecurityScheme {
                            description: or_empty(scheme.description.as_ref()),
                        })
                    }
                };
                Self {
                    scheme: Some(scheme),
                }
            }
        }

        impl TryFrom<$proto::SecurityScheme> for $crate::model::SecurityScheme {
            type Error = $crate::model::Error;

            fn try_from(scheme: $proto::SecurityScheme) -> Result<Self, Self::Error> {
                use $crate::wire::proto::non_empty;
                use $proto::security_scheme::Scheme;
                Ok(match scheme.scheme {
                    Some(Scheme::ApiKeySecurityScheme(scheme)) => {
                        Self::ApiKey($crate::model::ApiKeySecurityScheme {
                            description: non_empty(scheme.description),
                            location: scheme.location,
                            name: scheme.name,
                        })
                    }
                    Some(Scheme::HttpAuthSecurityScheme(scheme)) => {
                        Self::HttpAuth($crate::model::HttpAuthSecurityScheme {
                            description: non_empty(scheme.description),
                            scheme: scheme.scheme,
                            bearer_format: non_empty(scheme.bearer_format),
                        })
                    }
                    Some(Scheme::Oauth2SecurityScheme(scheme)) => {
                        Self::OAuth2($crate::model::OAuth2SecurityScheme {
                            description: non_empty(scheme.description),
                            flows: scheme.flows.and_then(|flows| flows.flow).map(read_flow),
                            oauth2_metadata_url: non_empty(scheme.oauth2_metadata_url),
                        })
                    }
                    Some(Scheme::OpenIdConnectSecurityScheme(scheme)) => {
                        Self::OpenIdConnect($crate::model::OpenIdConnectSecurityScheme {
                            description: non_empty(scheme.description),
                            open_id_connect_url: scheme.open_id_connect_url,
                        })
                    }
                    Some(Scheme::MtlsSecurityScheme(scheme)) => {
                        Self::MutualTls($crate::model::MutualTlsSecurityScheme {
                            description: non_empty(scheme.description),
                        })
                    }
                    None => {
                        let rule = "must have exactly one kind of security scheme";
                        return Err($crate::model::Error::invalid("", rule));
                    }
                })
            }
        }

        $crate::wire::proto::impl_flow_conversions!(
            $proto,
            ClientCredentialsFlow,
            ClientCredentialsOAuthFlow { token_url }
        );
        $crate::wire::proto::impl_flow_conversions!(
            $proto,
            ImplicitFlow,
            ImplicitOAuthFlow { authorization_url }
        );
        $crate::wire::proto::impl_flow_conversions!(
            $proto,
            PasswordFlow,
            PasswordOAuthFlow { token_url }
        );
    };
}

/// Implements the conversions of an OAuth flow that has only URLs and scopes.
macro_rules! impl_flow_conversions {
    ($proto:ident, $model:ident, $message:ident { $($url:ident)+ }) => {
        impl From<&$crate::model::$model> for $proto::$message {
            fn from(flow: &$crate::model::$model) -> Self {
                Self {
                    $($url: flow.$url.clone(),)+
                    refresh_url: $crate::wire::proto::or_empty(flow.refresh_url.as_ref()),
                    scopes: flow.scopes.clone(),
                }
            }
        }

        impl From<$proto::$message> for $crate::model::$model {
            fn from(flow: $proto::$message) -> Self {
                Self {
                    $($url: flow.$url,)+
                    refresh_url: $crate::wire::proto::non_empty(flow.refresh_url),
                    scopes: flow.scopes,
                }
            }
        }
    };
}

pub(crate) use {impl_card_conversions, impl_flow_conversions, impl_task_conversions};
