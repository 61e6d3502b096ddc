//! The keys of service and check definitions, which nest (a sidecar is a service in a service).

/// What a field of a definition holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int,
    /// A string.
    Text,
    /// A Go duration string.
    Duration,
    /// A list of strings.
    Texts,
    /// A block of strings.
    TextMap,
    /// A block of lists of strings.
    TextsMap,
    /// Anything.
    Free,
    /// A block with these keys.
    Block(&'static [Field]),
    /// A list of blocks with these keys.
    Blocks(&'static [Field]),
    /// Blocks with these keys under free names.
    BlockMap(&'static [Field]),
}

/// One field of a definition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// Its name (lower case with underscores).
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// An older spelling; empty for none.
    pub alias: &'static str,
}

const fn field(name: &'static str, shape: Shape) -> Field {
    Field {
        name,
        shape,
        alias: "",
    }
}

const fn aliased(name: &'static str, shape: Shape, alias: &'static str) -> Field {
    Field { name, shape, alias }
}

/// A service (`service`, `services`, and `connect.sidecar_service` inside one: hence an array, which may name itself).
pub static SERVICE: [Field; 15] = [
    field("kind", Shape::Text),
    field("id", Shape::Text),
    field("name", Shape::Text),
    field("tags", Shape::Texts),
    field("address", Shape::Text),
    field("tagged_addresses", Shape::BlockMap(SERVICE_ADDRESS)),
    field("meta", Shape::TextMap),
    field("port", Shape::Int),
    field("check", Shape::Block(CHECK)),
    field("checks", Shape::Blocks(CHECK)),
    field("token", Shape::Text),
    field("weights", Shape::Block(WEIGHTS)),
    field("enable_tag_override", Shape::Bool),
    field("proxy", Shape::Block(PROXY)),
    field("connect", Shape::Block(CONNECT)),
];

/// A check (`check`, `checks`, and inside a service).
pub static CHECK: &[Field] = &[
    field("id", Shape::Text),
    field("name", Shape::Text),
    field("notes", Shape::Text),
    aliased("service_id", Shape::Text, "serviceid"),
    field("token", Shape::Text),
    field("status", Shape::Text),
    aliased("args", Shape::Texts, "scriptargs"),
    field("http", Shape::Text),
    field("header", Shape::TextsMap),
    field("method", Shape::Text),
    field("body", Shape::Text),
    field("tcp", Shape::Text),
    field("interval", Shape::Duration),
    aliased("docker_container_id", Shape::Text, "dockercontainerid"),
    field("shell", Shape::Text),
    field("grpc", Shape::Text),
    field("grpc_use_tls", Shape::Bool),
    aliased("tls_skip_verify", Shape::Bool, "tlsskipverify"),
    field("alias_node", Shape::Text),
    field("alias_service", Shape::Text),
    field("timeout", Shape::Duration),
    field("ttl", Shape::Duration),
    field("success_before_passing", Shape::Int),
    field("failures_before_critical", Shape::Int),
    aliased(
        "deregister_critical_service_after",
        Shape::Duration,
        "deregistercriticalserviceafter",
    ),
    field("output_max_size", Shape::Int),
];

static SERVICE_ADDRESS: &[Field] = &[field("address", Shape::Text), field("port", Shape::Int)];

static WEIGHTS: &[Field] = &[field("passing", Shape::Int), field("warning", Shape::Int)];

static CONNECT: &[Field] = &[
    field("native", Shape::Bool),
    field("sidecar_service", Shape::Block(&SERVICE)),
];

static PROXY: &[Field] = &[
    field("destination_service_name", Shape::Text),
    field("destination_service_id", Shape::Text),
    field("local_service_address", Shape::Text),
    field("local_service_port", Shape::Int),
    field("config", Shape::Free),
    field("upstreams", Shape::Blocks(UPSTREAM)),
    field("mesh_gateway", Shape::Block(MESH_GATEWAY)),
    field("expose", Shape::Block(EXPOSE)),
];

static UPSTREAM: &[Field] = &[
    field("destination_type", Shape::Text),
    field("destination_namespace", Shape::Text),
    field("destination_name", Shape::Text),
    field("datacenter", Shape::Text),
    field("local_bind_address", Shape::Text),
    field("local_bind_port", Shape::Int),
    field("config", Shape::Free),
    field("mesh_gateway", Shape::Block(MESH_GATEWAY)),
];

static MESH_GATEWAY: &[Field] = &[field("mode", Shape::Text)];

static EXPOSE: &[Field] = &[
    field("checks", Shape::Bool),
    field("paths", Shape::Blocks(EXPOSE_PATH)),
];

static EXPOSE_PATH: &[Field] = &[
    field("path", Shape::Text),
    field("listener_port", Shape::Int),
    field("local_path_port", Shape::Int),
    field("protocol", Shape::Text),
];
