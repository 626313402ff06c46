//! Protobuf and gRPC of A2A 1.0 ([`v1`]) and 0.3 ([`v03`]), as the `.proto` files of this crate say them.
//!
//! Shapes and nothing else: what a message means, what is required and how the versions map onto each other is
//! the library's affair. Clients come without a transport, so that every connection is opened in one place.
//!
//! All maps are ordered: equal messages encode to equal bytes.

/// A2A 1.0, package `lf.a2a.v1`.
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod v1 {
    /// The encoded `FileDescriptorSet` of this package and its imports, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/lf.a2a.v1.bin");

    include!("generated/lf.a2a.v1.rs");
}

/// A2A 0.3, package `a2a.v1`.
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod v03 {
    /// The encoded `FileDescriptorSet` of this package and its imports, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/a2a.v1.bin");

    include!("generated/a2a.v1.rs");
}
