//! Protobuf and gRPC code of A2A, generated.
