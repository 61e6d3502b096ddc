//! Archives over the RPC port: type byte 5 or ALPN `consul/rpc-snapshot`.
//!
//! ```text
//!   client: SnapshotRequest, archive (to restore), end of its side
//!   server: SnapshotResponse, archive (when saving), end
//! ```

use crate::api::Api;
use crate::api::error::Error;
use crate::api::snapshot::MAX_ARCHIVE;
use crate::codec::{self, FrameReader};
use crate::model::QueryMeta;
use crate::model::query::{SnapshotRequest, SnapshotResponse};
use crate::net::Stream;
use crate::rpc::Incoming;
use bytes::BytesMut;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Largest request in front of an archive, in bytes.
const MAX_REQUEST: usize = 64 * 1024;
/// How long the peer may take for an archive.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the peer may pause.
const STALL: Duration = Duration::from_secs(60);
/// What is written at a time.
const PIECE: usize = 256 * 1024;

/// Serves connections until `stop`.
pub async fn serve(api: Api, mut incoming: mpsc::Receiver<Incoming>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let next = tokio::select! {
            next = incoming.recv() => next,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => break,
        };
        let Some(Incoming { stream, context }) = next else {
            break;
        };
        let (api, peer) = (api.clone(), context.peer);
        connections.spawn(async move {
            if let Err(error) = connection(&api, stream).await {
                tracing::debug!(%peer, %error, "snapshot connection closed");
            }
        });
    }
    connections.shutdown().await;
}

async fn connection(api: &Api, mut stream: Stream) -> io::Result<()> {
    let mut reader = FrameReader::new(MAX_REQUEST).with_stall_timeout(STALL);
    let value = timeout(STALL, reader.next(&mut stream)).await?;
    let Some(value) = value.map_err(io::Error::other)? else {
        return Ok(()); // Nobody asked anything.
    };
    let answer = match codec::from_slice::<SnapshotRequest>(&value) {
        Err(error) => Err(Error::refused(format!("failed to decode request: {error}"))),
        Ok(request) => {
            let _place = api.archive_place().await;
            match request.op {
                0 => {
                    api.save_snapshot(&request.datacenter, request.allow_stale)
                        .await
                }
                1 => {
                    let archive = rest(&mut stream, reader.into_rest());
                    let archive = timeout(PATIENCE, archive).await??;
                    let restored = api.restore_snapshot(&request.datacenter, archive).await;
                    restored.map(|()| (QueryMeta::default(), Vec::new()))
                }
                other => Err(Error::refused(format!("unrecognized snapshot op {other}"))),
            }
        }
    };
    let (error, meta, archive) = match answer {
        Ok((meta, archive)) => (String::new(), meta, archive),
        Err(error) => (error.to_string(), QueryMeta::default(), Vec::new()),
    };
    let mut response = SnapshotResponse {
        error,
        ..SnapshotResponse::default()
    };
    response.set_meta(meta);
    let head = codec::to_vec(&response).map_err(io::Error::other)?;
    for piece in std::iter::once(&head[..]).chain(archive.chunks(PIECE)) {
        timeout(STALL, stream.write_all(piece)).await??;
    }
    timeout(STALL, stream.shutdown()).await?
}

/// Everything up to the end of the peer's side.
async fn rest(stream: &mut Stream, begun: BytesMut) -> io::Result<Vec<u8>> {
    let mut all = begun;
    while timeout(STALL, stream.read_buf(&mut all)).await?? > 0 {
        if all.len() > MAX_ARCHIVE {
            return Err(io::Error::other("the archive is too large"));
        }
    }
    Ok(all.into())
}
