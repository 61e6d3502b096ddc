//! One member of a pool, as serf shows it.

use serde::Deserialize;
use serde::Serialize;

use crate::gossip::Tags;
use crate::gossip::wire::fields::NodeAddr;
use crate::model::NodeName;

/// What is known of a member's life; the numbers are serf's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub enum MemberStatus {
    /// Nothing is known.
    #[default]
    None,
    /// It answers.
    Alive,
    /// It has said that it will leave.
    Leaving,
    /// It left in order.
    Left,
    /// It does not answer.
    Failed,
}

impl From<u8> for MemberStatus {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Alive,
            2 => Self::Leaving,
            3 => Self::Left,
            4 => Self::Failed,
            _ => Self::None,
        }
    }
}

impl From<MemberStatus> for u8 {
    fn from(status: MemberStatus) -> Self {
        match status {
            MemberStatus::None => 0,
            MemberStatus::Alive => 1,
            MemberStatus::Leaving => 2,
            MemberStatus::Left => 3,
            MemberStatus::Failed => 4,
        }
    }
}

impl MemberStatus {
    /// The name that people see in `members`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alive => "alive",
            Self::Leaving => "leaving",
            Self::Left => "left",
            Self::Failed => "failed",
        }
    }
}

/// A member of a pool. The serde form is the one that answers serf's query about a name conflict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Member {
    /// Unique in the pool; in the pool of all datacenters, `node.datacenter`.
    pub name: NodeName,
    /// Where its gossip is received.
    pub addr: NodeAddr,
    /// Port of `addr`, for packets and streams alike.
    pub port: u16,
    /// What it says about itself.
    pub tags: Tags,
    /// What is known of its life.
    pub status: MemberStatus,
    /// Lowest memberlist protocol it speaks.
    pub protocol_min: u8,
    /// Highest memberlist protocol it speaks.
    pub protocol_max: u8,
    /// The memberlist protocol it speaks now.
    pub protocol_cur: u8,
    /// Lowest serf protocol it understands.
    pub delegate_min: u8,
    /// Highest serf protocol it understands.
    pub delegate_max: u8,
    /// The serf protocol it speaks now.
    pub delegate_cur: u8,
}
