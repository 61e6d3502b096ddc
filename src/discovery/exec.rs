//! A program that prints addresses: `exec=/path args`. One or more addresses, parted by white space, on standard output.
//!
//! The program runs in a process group of its own, which is killed when the time or the output exceeds its bound.

use crate::discovery::source::Refusal;
use crate::discovery::words;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process_group;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;
use tokio::process::Child;
use tokio::process::Command;

/// How long a program may run.
pub const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Most bytes of standard output; more ends the program.
pub const MAX_OUTPUT: usize = 64 * 1024;

/// Most bytes of standard error that an error shows.
const MAX_COMPLAINT: usize = 300;

/// A program and its arguments. No shell reads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// An absolute path.
    pub path: PathBuf,
    /// What it is given.
    pub arguments: Vec<String>,
}

impl Program {
    /// Reads what follows `exec=`.
    pub(crate) fn parse(command: &str) -> Result<Self, Refusal> {
        let remedy = || {
            "write exec=/path/to/program and its arguments, those with spaces in double quotes"
                .to_owned()
        };
        let words = words::split(command).map_err(|what| (what.to_owned(), remedy()))?;
        let mut words = words.into_iter();
        let path = words.next().map(PathBuf::from).unwrap_or_default();
        if !path.is_absolute() {
            let what = "the program has no absolute path".to_owned();
            return Err((what, remedy()));
        }
        Ok(Self {
            path,
            arguments: words.collect(),
        })
    }
}

/// Runs a program to its end; what it printed. `Err` says what is wrong and what to do.
pub(crate) async fn run(program: &Program, limit: Duration) -> Result<String, String> {
    let mut child = Command::new(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            format!("the program does not start: {error}; check its path and permissions")
        })?;
    let group = Group(child.id());
    let (output, complaint, status) = tokio::time::timeout(limit, collect(&mut child))
        .await
        .map_err(|_| {
            format!("the program ran longer than {limit:?} and was killed; make it faster")
        })?
        .map_err(|error| format!("the program's output cannot be read: {error}"))?;
    let Some(status) = status else {
        return Err(format!(
            "the program printed more than {MAX_OUTPUT} bytes and was killed; let it print addresses only"
        ));
    };
    drop(group);
    if !status.success() {
        let said = complaint.trim();
        let said = if said.is_empty() { "nothing" } else { said };
        return Err(format!(
            "the program ended with {status}; it said {said:?} on standard error"
        ));
    }
    String::from_utf8(output).map_err(|_| {
        "the program printed bytes that are no text; let it print addresses".to_owned()
    })
}

/// Standard output, the last of standard error, and how the program ended; `None` if it printed too much.
async fn collect(child: &mut Child) -> std::io::Result<(Vec<u8>, String, Option<ExitStatus>)> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let mut output = Vec::new();
        if let Some(stdout) = stdout {
            let limit = MAX_OUTPUT as u64 + 1;
            stdout.take(limit).read_to_end(&mut output).await?;
        }
        Ok::<_, std::io::Error>(output)
    };
    let complaint = async {
        match stderr {
            Some(stderr) => tail(stderr).await,
            None => Ok(String::new()),
        }
    };
    tokio::pin!(complaint);
    tokio::pin!(output);
    // A program that prints too much does not close its standard error, so that is not waited for.
    let (output, complaint) = tokio::select! {
        output = &mut output => {
            let output = output?;
            if output.len() > MAX_OUTPUT {
                return Ok((output, String::new(), None));
            }
            (output, complaint.await?)
        }
        complaint = &mut complaint => (output.await?, complaint?),
    };
    if output.len() > MAX_OUTPUT {
        return Ok((output, complaint, None));
    }
    Ok((output, complaint, Some(child.wait().await?)))
}

/// Reads to the end and keeps the last [`MAX_COMPLAINT`] bytes.
async fn tail(mut from: impl AsyncRead + Unpin) -> std::io::Result<String> {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(String::from_utf8_lossy(&kept).into_owned());
        }
        kept.extend_from_slice(buffer.get(..read).unwrap_or_default());
        kept.drain(..kept.len().saturating_sub(MAX_COMPLAINT));
    }
}

/// Kills the program and what it started, when it is dropped.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            // The group may be empty already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
        }
    }

    async fn failure(script: &str, limit: Duration) -> String {
        run(&shell(script), limit).await.unwrap_err()
    }

    #[test]
    fn commands_are_split_like_words() {
        let program = Program::parse(r#"/usr/bin/list --tag "a b""#).unwrap();
        assert_eq!(program.path, PathBuf::from("/usr/bin/list"));
        assert_eq!(program.arguments, ["--tag", "a b"]);
        for wrong in ["", "list", "./list", "\"/a"] {
            assert!(Program::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn output_and_errors() {
        let printed = run(&shell("echo 10.0.0.1; echo 10.0.0.2"), TIME_LIMIT).await;
        assert_eq!(printed.unwrap(), "10.0.0.1\n10.0.0.2\n");
        let error = failure("echo no credentials >&2; exit 3", TIME_LIMIT).await;
        assert_eq!(
            error,
            "the program ended with exit status: 3; it said \"no credentials\" on standard error"
        );
        let error = failure("head -c 70000 /dev/zero; sleep 60", TIME_LIMIT).await;
        assert!(error.contains("more than 65536 bytes"), "{error}");
        let error = failure(r"printf '\377'", TIME_LIMIT).await;
        assert!(error.contains("no text"), "{error}");
        let noisy = "head -c 1000000 /dev/zero >&2; echo 10.0.0.1";
        assert_eq!(run(&shell(noisy), TIME_LIMIT).await.unwrap(), "10.0.0.1\n");
        let missing = Program {
            path: "/nonexistent".into(),
            arguments: Vec::new(),
        };
        let error = run(&missing, TIME_LIMIT).await.unwrap_err();
        assert!(error.contains("does not start"), "{error}");
    }

    /// What the program started dies with it, even if it keeps the output open.
    #[tokio::test]
    async fn a_slow_program_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let run = failure(&script, Duration::from_millis(500)).await;
        assert!(run.contains("longer than 500ms"), "{run}");
        let pid = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        // Gone, or dead and waiting for whoever collects orphans here.
        while std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            assert!(tokio::time::Instant::now() < deadline, "the child lives");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
