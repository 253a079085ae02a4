//! Says that this program was built without what asks a container runtime (the cargo feature `container-runtime`).

use std::rc::Rc;

use super::reactor::Reactor;
use crate::config::Settings;
use crate::probe::{self, Asked};

/// In the place of the one that the settings name.
pub struct ContainerRuntime {
    path: String,
}

impl ContainerRuntime {
    pub fn at(path: String) -> ContainerRuntime {
        ::log::warn!(target: "no-container-runtime", "containerRuntimeEndpoint: this program was built without it: build it with NODEPULSE_FEATURES=container-runtime");
        ContainerRuntime { path }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn image_path(&self) -> Option<&str> {
        None
    }

    pub async fn look(&mut self, _: &Rc<Reactor>, _: &Asked) -> Option<probe::ContainerRuntime> {
        None
    }
}

pub fn once(settings: &Settings) -> Option<probe::ContainerRuntime> {
    Asked::by(settings).container_runtime.map(ContainerRuntime::at);
    None
}
