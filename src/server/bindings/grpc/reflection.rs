//! gRPC server reflection: serves the protobuf descriptors to tools. Enabled by `grpc_reflection`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::LazyLock;

use http::Request;
use http_body_util::BodyExt;
use tonic::codegen::Service as TowerService;
use tonic_reflection::server::{Builder, Error};

use crate::server::body::CountedBody;
use crate::server::reply::{Reply, ReplyBody};

type ReflectionFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;
/// Reflection service, type-erased.
pub(super) type ReflectionService =
    Box<dyn Fn(Request<CountedBody>) -> ReflectionFuture + Send + Sync>;

/// Maximum size of a reflection request, which names a file or a symbol.
pub(super) const MAX_REQUEST_BYTES: usize = 16 << 10;

/// Services by path prefix. The descriptors are decoded once per process.
static SERVICES: LazyLock<Result<[(&str, ReflectionService); 2], Error>> = LazyLock::new(|| {
    let v1 = builder()
        .build_v1()?
        .max_decoding_message_size(MAX_REQUEST_BYTES);
    let v1alpha = builder()
        .build_v1alpha()?
        .max_decoding_message_size(MAX_REQUEST_BYTES);
    Ok([
        ("/grpc.reflection.v1.", boxed_service(v1)),
        ("/grpc.reflection.v1alpha.", boxed_service(v1alpha)),
    ])
});

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(attache_proto::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(attache_proto::v03::FILE_DESCRIPTOR_SET)
}

/// Returns the service of a path. Current tools use `v1`, older ones `v1alpha`.
pub(super) fn service(path: &str) -> Option<&'static ReflectionService> {
    let services = SERVICES.as_ref().ok()?;
    services
        .iter()
        .find(|(prefix, _)| path.starts_with(prefix))
        .map(|(_, service)| service)
}

fn boxed_service<S>(service: S) -> ReflectionService
where
    S: TowerService<
            Request<CountedBody>,
            Response = http::Response<tonic::body::Body>,
            Error = Infallible,
        >,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            let Ok(answer) = service.call(request).await;
            answer.map(|body| ReplyBody::Stream(Box::new(body.map_err(Into::into))))
        })
    })
}
