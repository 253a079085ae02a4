#!/bin/sh
# Installs nodepulse from the folder that this script lies in, with BusyBox's tools alone. Starts and enables nothing.
#
#   ./install.sh [--prefix DIR] [--service systemd|openrc|procd|sysv|none]    default: /usr/local, what runs here
#   ./install.sh --remove [--prefix DIR]                                      settings, journal and user stay
set -eu

here=$(cd "$(dirname "$0")" && pwd)
prefix=/usr/local
service=
remove=

usage() {
	sed -n 's/^#   //p' "$0" >&2
	exit 64
}

while [ $# -gt 0 ]; do
	case $1 in
	--prefix) prefix=${2:?--prefix needs a folder} && shift 2 ;;
	--service) service=${2:?--service needs a name} && shift 2 ;;
	--remove) remove=yes && shift ;;
	*) usage ;;
	esac
done
case $prefix in /*) ;; *) usage ;; esac

# What runs here.
if [ -z "$service" ]; then
	if [ -d /run/systemd/system ]; then
		service=systemd
	elif [ -x /sbin/procd ]; then
		service=procd
	elif [ -x /sbin/openrc-run ] && [ -d /run/openrc ]; then
		service=openrc
	else
		service=sysv
	fi
fi
case $service in systemd | openrc | procd | sysv | none) ;; *) usage ;; esac

# put MODE FILE TO: beside its place first, so that a power cut leaves the old one or the new one.
put() {
	[ -f "$here/$2" ] || return 0
	mkdir -p "$(dirname "$3")"
	sed "s#/usr/bin/nodepulse#$prefix/bin/nodepulse#g" "$here/$2" >"$3.new"
	chmod "$1" "$3.new"
	mv -f "$3.new" "$3"
}

if [ -n "$remove" ]; then
	rm -f "$prefix/bin/nodepulse" "$prefix/share/man/man8/nodepulse.8" \
		"$prefix/share/bash-completion/completions/nodepulse" "$prefix/share/zsh/site-functions/_nodepulse" \
		"$prefix/share/fish/vendor_completions.d/nodepulse.fish" \
		/etc/systemd/system/nodepulse.service /etc/sysusers.d/nodepulse.conf /etc/tmpfiles.d/nodepulse.conf \
		/etc/init.d/nodepulse
	rm -rf "$prefix/share/nodepulse"
	echo 'Removed. Settings (/etc/nodepulse), the journal (/var/lib/nodepulse) and the user nodepulse are still there.'
	exit 0
fi

if ! "$here/nodepulse" version >/dev/null 2>&1; then
	echo "install.sh: $here/nodepulse does not run on this $(uname -m): take the archive for it" >&2
	exit 69
fi
mkdir -p "$prefix/bin"
cp "$here/nodepulse" "$prefix/bin/nodepulse.new"
chmod 755 "$prefix/bin/nodepulse.new"
mv -f "$prefix/bin/nodepulse.new" "$prefix/bin/nodepulse"
put 644 nodepulse.8 "$prefix/share/man/man8/nodepulse.8"
put 644 completions/nodepulse.bash "$prefix/share/bash-completion/completions/nodepulse"
put 644 completions/_nodepulse "$prefix/share/zsh/site-functions/_nodepulse"
put 644 completions/nodepulse.fish "$prefix/share/fish/vendor_completions.d/nodepulse.fish"
for file in README.md alerts.yaml auto-approve.yaml bootstrap.yaml daemonset.yaml dashboard.json fleet.md joining.md revoked.yaml service-account.yaml service-accounts.yaml; do
	put 644 "kubernetes/$file" "$prefix/share/nodepulse/kubernetes/$file"
done
for file in enroll kubectl-nodepulse names-policy; do
	put 755 "kubernetes/$file" "$prefix/share/nodepulse/kubernetes/$file"
done

if [ "$service" != none ] && ! grep -q '^nodepulse:' /etc/passwd; then
	if command -v useradd >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/nodepulse --no-create-home --shell /bin/false nodepulse
	else
		# By hand: not every BusyBox has adduser, and not every adduser the same options.
		id=999
		while grep -q "^[^:]*:[^:]*:$id:" /etc/passwd /etc/group; do id=$((id - 1)); done
		echo "nodepulse:x:$id:" >>/etc/group
		echo "nodepulse:x:$id:$id:Kubernetes Node agent:/var/lib/nodepulse:/bin/false" >>/etc/passwd
	fi
fi
case $service in
systemd)
	put 644 systemd/nodepulse.service /etc/systemd/system/nodepulse.service
	put 644 systemd/nodepulse.sysusers /etc/sysusers.d/nodepulse.conf
	put 644 systemd/nodepulse.tmpfiles /etc/tmpfiles.d/nodepulse.conf
	next='systemd-tmpfiles --create nodepulse.conf; systemctl daemon-reload; systemctl enable --now nodepulse'
	;;
openrc)
	put 755 openrc/nodepulse /etc/init.d/nodepulse
	next='rc-update add nodepulse default; rc-service nodepulse start'
	;;
procd)
	put 755 procd/nodepulse /etc/init.d/nodepulse
	next='/etc/init.d/nodepulse enable; /etc/init.d/nodepulse start'
	;;
sysv)
	put 755 sysv/nodepulse /etc/init.d/nodepulse
	next='ln -s nodepulse /etc/init.d/S95nodepulse (BusyBox) or update-rc.d nodepulse defaults; /etc/init.d/nodepulse start'
	;;
none) next="$prefix/bin/nodepulse run" ;;
esac
if [ "$service" != none ]; then
	mkdir -p /etc/nodepulse
	chgrp nodepulse /etc/nodepulse
	chmod 750 /etc/nodepulse
fi

cat <<END
Installed $("$prefix/bin/nodepulse" version) for $service; nothing is started.
 1. Put a kubeconfig at /etc/nodepulse/kubeconfig; secrets readable for the group nodepulse, not for the world:
    chgrp nodepulse /etc/nodepulse/kubeconfig; chmod 640 /etc/nodepulse/kubeconfig
 2. $prefix/bin/nodepulse check
 3. $next
END
