//! Says that this program was built without what device plug-ins need (the cargo feature `device-plugins`).

use std::rc::Rc;

use super::reactor::Reactor;
use crate::config::text_map::TextMap;
use crate::probe::Fact;

/// In the place of those that have registered.
pub struct DevicePlugins;

impl DevicePlugins {
    pub fn new(directory: Option<&str>) -> DevicePlugins {
        if directory.is_some() {
            ::log::warn!(target: "no-device-plugins", "devicePlugins: this program was built without them: build it with NODEPULSE_FEATURES='container-runtime device-plugins'");
        }
        DevicePlugins
    }

    pub fn count(&self, _: &mut TextMap<Fact<u64>>, _: &mut TextMap<u64>) {}

    pub async fn serve(&self, _: &Rc<Reactor>) {}
}
