# enter.sh ROOT TOOLCHAIN SOURCES SCRIPT [NAME=VALUE...]: run inside a new mount and process namespace.
# pivot_root rather than chroot: the kernel refuses user namespaces to a process that is chrooted.
root=$1 toolchain=$2 sources=$3 script=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
cd "/$sources"
exec env -i HOME=/root LANG=C.UTF-8 PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" \
  /bin/sh -ec "$script"
