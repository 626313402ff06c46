//! Generated protobuf messages and gRPC services of A2A 1.0 ([`v1`]) and 0.3 ([`v03`]), from the
//! `.proto` files of this crate.
//!
//! The crate contains generated code only. The library validates messages and converts between
//! versions. The generated clients have no transport; the library opens all connections in one
//! place.
//!
//! Maps are ordered, so equal messages encode to equal bytes.

/// A2A 1.0, package `lf.a2a.v1`.
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod v1 {
    /// Encoded `FileDescriptorSet` of this package and its imports, for gRPC reflection.
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
    /// Encoded `FileDescriptorSet` of this package and its imports, for gRPC reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/a2a.v1.bin");

    include!("generated/a2a.v1.rs");
}
