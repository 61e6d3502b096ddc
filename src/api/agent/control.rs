//! What the process around this server is asked to do: read its configuration again.

use crate::api::Api;
use crate::api::error::Error;
use tokio::sync::mpsc;
use tokio::sync::oneshot;

/// Orders that may wait.
const QUEUE: usize = 8;

/// An order of a client to read the configuration again; answered with what is wrong with it.
pub type Reload = oneshot::Sender<Result<(), String>>;

/// Passes orders on. Cloning it shares the way.
#[derive(Debug, Clone)]
pub struct Control(mpsc::Sender<Reload>);

/// A way for orders, and its other end.
pub fn channel() -> (Control, mpsc::Receiver<Reload>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Control(sender), receiver)
}

impl Api {
    /// Reads the configuration again and puts in force what can change while the server runs.
    ///
    /// # Errors
    /// There is no agent, or what is wrong with the configuration; the old one then stays in force.
    pub async fn agent_reload(&self) -> Result<(), Error> {
        let stopping = || Error::Internal("This server is stopping".to_owned());
        let (reply, answer) = oneshot::channel();
        let sent = self.agent()?.control.0.send(reply).await;
        sent.map_err(|_| stopping())?;
        answer
            .await
            .map_err(|_| stopping())?
            .map_err(Error::Refused)
    }
}
