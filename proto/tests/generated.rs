//! Checks that the committed code is what the `.proto` files generate, byte by byte.
//!
//! A test instead of a build script, so that builds do not run the code generator.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;

/// Packages of this crate. `x.y` is read from `proto/x/y/a2a.proto` and written to
/// `src/generated/x.y.{rs,bin}`.
const PACKAGES: [&str; 2] = ["lf.a2a.v1", "a2a.v1"];

const COMMAND: &str = "UPDATE_GENERATED=1 cargo test -p attache-proto --test generated";

#[test]
fn committed_code_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/generated");
    let update = env::var_os("UPDATE_GENERATED").is_some_and(|value| value == "1");

    let mut stale = Vec::new();
    for package in PACKAGES {
        for fresh in generate(root, package) {
            let name = fresh.file_name().expect("generated files have names");
            let target = committed.join(name);
            let new = fs::read(&fresh).expect("just written");
            if fs::read(&target).is_ok_and(|old| old == new) {
                continue;
            }
            if update {
                fs::write(&target, new).unwrap();
            } else {
                stale.push(name.to_string_lossy().into_owned());
            }
        }
    }
    assert!(
        stale.is_empty(),
        "{} not up to date in proto/src/generated; run\n\n    {COMMAND}\n",
        stale.join(", ")
    );
}

/// Generates code and descriptor set of one package into a temporary folder, under the names of the
/// committed files.
fn generate(root: &Path, package: &str) -> [PathBuf; 2] {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let code = out.join(format!("{package}.rs"));
    let descriptors = out.join(format!("{package}.bin"));

    let file = format!("{}/a2a.proto", package.replace('.', "/"));
    let mut set =
        protox::compile([file], [root.join("proto")]).unwrap_or_else(|error| panic!("{error:?}"));

    tonic_prost_build::configure()
        .out_dir(out)
        // Ordered maps, so that equal messages encode to equal bytes.
        .btree_map(".")
        // Without `connect`: the library opens all connections itself.
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds(set.clone())
        .expect("generate");

    // Reflection needs no comments.
    for file in &mut set.file {
        file.source_code_info = None;
    }
    fs::write(&descriptors, set.encode_to_vec()).expect("write the descriptor set");

    [code, descriptors]
}
