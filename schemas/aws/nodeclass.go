package aws

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EC2NodeClass says how nodes are launched on EC2: into which subnets, from which
// images, with which disks, permissions and user data.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ec2nodeclasses,scope=Cluster,categories=karpenter,shortName={ec2nc,ec2ncs}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",priority=1
type EC2NodeClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec EC2NodeClassSpec `json:"spec,omitempty"`
	// +optional
	Status EC2NodeClassStatus `json:"status,omitempty"`
}

// EC2NodeClassSpec is what an operator asks for.
//
// +kubebuilder:validation:XValidation:rule="has(self.role) != has(self.instanceProfile)",message="set either 'role' or 'instanceProfile', and not both"
// +kubebuilder:validation:XValidation:rule="has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",message="set 'amiFamily', unless amiSelectorTerms has an 'alias'"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['AL2', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'al2')",message="an al2 alias goes with amiFamily AL2 or Custom"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['AL2023', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'al2023')",message="an al2023 alias goes with amiFamily AL2023 or Custom"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['Bottlerocket', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'bottlerocket')",message="a bottlerocket alias goes with amiFamily Bottlerocket or Custom"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['Windows2019', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'windows2019')",message="a windows2019 alias goes with amiFamily Windows2019 or Custom"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['Windows2022', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'windows2022')",message="a windows2022 alias goes with amiFamily Windows2022 or Custom"
// +kubebuilder:validation:XValidation:rule="!has(self.amiFamily) || self.amiFamily in ['Windows2025', 'Custom'] || !self.amiSelectorTerms.exists(t, has(t.alias) && t.alias.split('@')[0] == 'windows2025')",message="a windows2025 alias goes with amiFamily Windows2025 or Custom"
type EC2NodeClassSpec struct {
	// SubnetSelectorTerms find the subnets to launch into: those that any term matches.
	//
	// +required
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="give at least one subnet selector term"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.tags) || has(t.id))",message="a subnet selector term needs 'tags' or 'id'"
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.exists(t, !has(t.id) || !has(t.tags))",message="'id' can't be combined with 'tags' in a subnet selector term"
	SubnetSelectorTerms []SubnetSelectorTerm `json:"subnetSelectorTerms"`
	// SecurityGroupSelectorTerms find the security groups of the instances: all that
	// any term matches.
	//
	// +required
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="give at least one security group selector term"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.tags) || has(t.id) || has(t.name))",message="a security group selector term needs 'tags', 'id' or 'name'"
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.exists(t, !has(t.id) || !(has(t.tags) || has(t.name)))",message="'id' can't be combined with 'tags' or 'name' in a security group selector term"
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.exists(t, !has(t.name) || !(has(t.tags) || has(t.id)))",message="'name' can't be combined with 'tags' or 'id' in a security group selector term"
	SecurityGroupSelectorTerms []SecurityGroupSelectorTerm `json:"securityGroupSelectorTerms"`
	// CapacityReservationSelectorTerms find the capacity reservations that may be
	// used: those that any term matches.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",message="a capacity reservation selector term needs 'tags', 'id' or 'instanceMatchCriteria'"
	// +kubebuilder:validation:XValidation:rule="self.exists(t, !has(t.id) || !(has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",message="'id' can't be combined with another field in a capacity reservation selector term, and the list can't be empty"
	CapacityReservationSelectorTerms []CapacityReservationSelectorTerm `json:"capacityReservationSelectorTerms,omitempty"`
	// PlacementGroupSelector names the placement group to launch into.
	//
	// +optional
	PlacementGroupSelector *PlacementGroupSelector `json:"placementGroupSelector,omitempty"`
	// AssociatePublicIPAddress says whether instances get public addresses. Unset
	// leaves it to the subnet.
	//
	// +optional
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// IPPrefixCount is how many IPv4 prefixes EC2 assigns to the primary interface.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	IPPrefixCount *int32 `json:"ipPrefixCount,omitempty"`
	// AMISelectorTerms find the images to launch from: those that any term matches,
	// the newest that fits an instance type first.
	//
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",message="an AMI selector term needs 'tags', 'id', 'name', 'alias' or 'ssmParameter'"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.id) || !(has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",message="'id' can't be combined with 'alias', 'tags', 'name' or 'owner' in an AMI selector term"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.alias) || !(has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",message="'alias' can't be combined with 'id', 'tags', 'name' or 'owner' in an AMI selector term"
	// +kubebuilder:validation:XValidation:rule="size(self) == 1 || !self.exists(t, has(t.alias))",message="an AMI selector term with 'alias' must be the only term"
	AMISelectorTerms []AMISelectorTerm `json:"amiSelectorTerms"`
	// AMIFamily says how nodes of the image are configured. It may be left out with
	// an alias, whose family it then is.
	//
	// +optional
	// +kubebuilder:validation:Enum=AL2;AL2023;Bottlerocket;Custom;Windows2019;Windows2022;Windows2025
	AMIFamily *string `json:"amiFamily,omitempty"`
	// UserData is merged into what the node needs to join, in the family's format.
	// With the family Custom it is used as it stands.
	//
	// +optional
	UserData *string `json:"userData,omitempty"`
	// Role is the name of the IAM role of the instances. An instance profile is made
	// for it.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="role can't be empty"
	Role string `json:"role,omitempty"`
	// InstanceProfile is the name of an instance profile that exists already.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="instanceProfile can't be empty"
	InstanceProfile *string `json:"instanceProfile,omitempty"`
	// Tags are put on instances, volumes, interfaces and launch templates.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0)",message="a tag's key can't be empty"
	// +kubebuilder:validation:XValidation:rule="!('eks:eks-cluster-name' in self)",message="the tag eks:eks-cluster-name is set by the controller"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, k.startsWith('kubernetes.io/cluster'))",message="tags under kubernetes.io/cluster are set by the controller"
	// +kubebuilder:validation:XValidation:rule="!('karpenter.sh/nodepool' in self)",message="the tag karpenter.sh/nodepool is set by the controller"
	// +kubebuilder:validation:XValidation:rule="!('karpenter.sh/nodeclaim' in self)",message="the tag karpenter.sh/nodeclaim is set by the controller"
	// +kubebuilder:validation:XValidation:rule="!('karpenter.k8s.aws/ec2nodeclass' in self)",message="the tag karpenter.k8s.aws/ec2nodeclass is set by the controller"
	Tags map[string]string `json:"tags,omitempty"`
	// Kubelet configures the kubelet: any field of the upstream
	// KubeletConfiguration. maxPods, podsPerCore, kubeReserved, systemReserved and
	// evictionHard also decide what pods can have of a node.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Kubelet KubeletConfiguration `json:"kubelet,omitempty"`
	// BlockDeviceMappings are the instance's disks. Unset means the family's default.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.filter(m, has(m.rootVolume) && m.rootVolume).size() < 2",message="only one block device mapping can have rootVolume"
	BlockDeviceMappings []*BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
	// InstanceStorePolicy RAID0 makes one volume of the instance's local disks, for
	// pods' ephemeral storage.
	//
	// +optional
	// +kubebuilder:validation:Enum=RAID0
	InstanceStorePolicy *InstanceStorePolicy `json:"instanceStorePolicy,omitempty"`
	// DetailedMonitoring turns on metrics by the minute.
	//
	// +optional
	DetailedMonitoring *bool `json:"detailedMonitoring,omitempty"`
	// MetadataOptions say who reaches the instance metadata service, and how.
	//
	// +optional
	// +kubebuilder:default={"httpEndpoint":"enabled","httpProtocolIPv6":"disabled","httpPutResponseHopLimit":1,"httpTokens":"required"}
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// NetworkInterfaces are the interfaces that an instance starts with. Unset means
	// one, or those that the requested devices need.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=150
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || self.exists(i, i.networkCardIndex == 0 && i.deviceIndex == 0 && i.interfaceType == 'interface')",message="networkInterfaces needs the primary one: networkCardIndex 0, deviceIndex 0, interfaceType interface"
	// +kubebuilder:validation:XValidation:rule="self.all(i, self.exists_one(j, j.networkCardIndex == i.networkCardIndex && j.deviceIndex == i.deviceIndex))",message="no two networkInterfaces can share networkCardIndex and deviceIndex"
	// +kubebuilder:validation:XValidation:rule="self.all(i, i.interfaceType != 'efa-only' || self.exists_one(j, j.interfaceType == 'efa-only' && j.networkCardIndex == i.networkCardIndex))",message="a network card can have one efa-only interface"
	NetworkInterfaces []*NetworkInterface `json:"networkInterfaces,omitempty"`
	// ConnectionTracking sets how long security groups remember idle connections.
	//
	// +optional
	ConnectionTracking *ConnectionTracking `json:"connectionTracking,omitempty"`
	// CPUOptions narrow and configure the processor.
	//
	// +optional
	CPUOptions *CPUOptions `json:"cpuOptions,omitempty"`
	// EnclaveOptions ask for Nitro Enclaves. Since Karpenter 1.15.
	//
	// +optional
	EnclaveOptions *EnclaveOptions `json:"enclaveOptions,omitempty"`
	// Context is passed to EC2's CreateFleet, where the field of that name is reserved.
	//
	// +optional
	Context *string `json:"context,omitempty"`
}

// SubnetSelectorTerm matches subnets that meet all of its fields.
type SubnetSelectorTerm struct {
	// Tags that the subnet must have. The value * matches any.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(self[k]) > 0)",message="tags to select by have neither an empty key nor an empty value"
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the subnet.
	//
	// +optional
	// +kubebuilder:validation:Pattern="subnet-[0-9a-z]+"
	ID string `json:"id,omitempty"`
}

// SecurityGroupSelectorTerm matches security groups that meet all of its fields.
type SecurityGroupSelectorTerm struct {
	// Tags that the security group must have. The value * matches any.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(self[k]) > 0)",message="tags to select by have neither an empty key nor an empty value"
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the security group.
	//
	// +optional
	// +kubebuilder:validation:Pattern="sg-[0-9a-z]+"
	ID string `json:"id,omitempty"`
	// Name of the security group: its group name, not a tag.
	//
	// +optional
	Name string `json:"name,omitempty"`
}

// CapacityReservationSelectorTerm matches capacity reservations that meet all of its fields.
type CapacityReservationSelectorTerm struct {
	// Tags that the reservation must have. The value * matches any.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(self[k]) > 0)",message="tags to select by have neither an empty key nor an empty value"
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the reservation.
	//
	// +optional
	// +kubebuilder:validation:Pattern="^cr-[0-9a-z]+$"
	ID string `json:"id,omitempty"`
	// OwnerID is the account that owns the reservation.
	//
	// +optional
	// +kubebuilder:validation:Pattern="^[0-9]{12}$"
	OwnerID string `json:"ownerID,omitempty"`
	// InstanceMatchCriteria is whether the reservation takes any matching instance
	// (open) or those alone that name it (targeted).
	//
	// +optional
	// +kubebuilder:validation:Enum=open;targeted
	InstanceMatchCriteria string `json:"instanceMatchCriteria,omitempty"`
}

// PlacementGroupSelector names one placement group.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) || has(self.id)",message="name the placement group by 'name' or by 'id'"
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.id)",message="name the placement group by 'name' or by 'id', not by both"
type PlacementGroupSelector struct {
	// Name of the placement group.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name,omitempty"`
	// ID of the placement group.
	//
	// +optional
	// +kubebuilder:validation:Pattern="^pg-[0-9a-z]+$"
	ID string `json:"id,omitempty"`
}

// AMISelectorTerm matches images that meet all of its fields.
type AMISelectorTerm struct {
	// Alias names an image of EKS by family and version, as in al2023@v20250116. The
	// families are al2, al2023, bottlerocket, windows2019, windows2022 and
	// windows2025. The version latest moves by itself: nodes drift with each release.
	// It is the only version of the Windows families.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]+@.+$')",message="write an alias as family@version"
	// +kubebuilder:validation:XValidation:rule="self.split('@')[0] in ['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']",message="an alias has one of the families al2, al2023, bottlerocket, windows2019, windows2022, windows2025"
	// +kubebuilder:validation:XValidation:rule="!(self.split('@')[0] in ['windows2019', 'windows2022', 'windows2025']) || self.split('@')[1] == 'latest'",message="a Windows alias has the version latest"
	Alias string `json:"alias,omitempty"`
	// Tags that the image must have. The value * matches any.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=20
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) > 0 && size(self[k]) > 0)",message="tags to select by have neither an empty key nor an empty value"
	Tags map[string]string `json:"tags,omitempty"`
	// ID of the image.
	//
	// +optional
	// +kubebuilder:validation:Pattern="ami-[0-9a-z]+"
	ID string `json:"id,omitempty"`
	// Name of the image: its own, not a tag. * and ? stand for any text and character.
	//
	// +optional
	Name string `json:"name,omitempty"`
	// Owner of the image: account ids, self, amazon, aws-marketplace. With a name and
	// without an owner, self and amazon are meant.
	//
	// +optional
	Owner string `json:"owner,omitempty"`
	// SSMParameter is the name or ARN of a parameter that holds an image's id.
	//
	// +optional
	SSMParameter string `json:"ssmParameter,omitempty"`
}

// MetadataOptions say who reaches the instance metadata service, and how.
type MetadataOptions struct {
	// HTTPEndpoint turns the service on or off.
	//
	// +optional
	// +kubebuilder:default=enabled
	// +kubebuilder:validation:Enum=enabled;disabled
	HTTPEndpoint *string `json:"httpEndpoint,omitempty"`
	// HTTPProtocolIPv6 turns its IPv6 address on or off.
	//
	// +optional
	// +kubebuilder:default=disabled
	// +kubebuilder:validation:Enum=enabled;disabled
	HTTPProtocolIPv6 *string `json:"httpProtocolIPv6,omitempty"`
	// HTTPPutResponseHopLimit is how many hops a session token may travel. Pods with
	// a network of their own are one hop further than the host.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	HTTPPutResponseHopLimit *int64 `json:"httpPutResponseHopLimit,omitempty"`
	// HTTPTokens says whether requests need a session token.
	//
	// +optional
	// +kubebuilder:default=required
	// +kubebuilder:validation:Enum=required;optional
	HTTPTokens *string `json:"httpTokens,omitempty"`
}

// BlockDeviceMapping is one disk of an instance.
type BlockDeviceMapping struct {
	// DeviceName is the name that the disk is attached under, as in /dev/xvda.
	//
	// +optional
	DeviceName *string `json:"deviceName,omitempty"`
	// EBS describes the volume.
	//
	// +optional
	EBS *BlockDevice `json:"ebs,omitempty"`
	// RootVolume marks the disk that the kubelet keeps its data on.
	//
	// +optional
	RootVolume bool `json:"rootVolume,omitempty"`
}

// BlockDevice describes an EBS volume.
//
// +kubebuilder:validation:XValidation:rule="has(self.volumeSize) || has(self.snapshotID)",message="a volume needs 'volumeSize' or 'snapshotID'"
// +kubebuilder:validation:XValidation:rule="!has(self.volumeInitializationRate) || has(self.snapshotID) && size(self.snapshotID) > 0",message="'volumeInitializationRate' needs a 'snapshotID'"
type BlockDevice struct {
	// DeleteOnTermination says whether the volume goes with its instance.
	//
	// +optional
	DeleteOnTermination *bool `json:"deleteOnTermination,omitempty"`
	// Encrypted says whether the volume is encrypted.
	//
	// +optional
	Encrypted *bool `json:"encrypted,omitempty"`
	// IOPS are those provisioned, for the types gp3, io1 and io2.
	//
	// +optional
	IOPS *int64 `json:"iops,omitempty"`
	// KMSKeyID is the id, alias or ARN of the key to encrypt with.
	//
	// +optional
	KMSKeyID *string `json:"kmsKeyID,omitempty"`
	// SnapshotID is the snapshot to start from.
	//
	// +optional
	SnapshotID *string `json:"snapshotID,omitempty"`
	// Throughput in MiB/s is what a gp3 volume has, from 125 to 1000.
	//
	// +optional
	Throughput *int64 `json:"throughput,omitempty"`
	// VolumeInitializationRate in MiB/s is how fast the snapshot is loaded.
	//
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=300
	VolumeInitializationRate *int32 `json:"volumeInitializationRate,omitempty"`
	// VolumeSize in Gi, G, Ti or T.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G|([1-9]|[1-5][0-7]|58)?Ti|([1-9]|[1-5][0-9]|6[0-4])?T)$`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	VolumeSize *resource.Quantity `json:"volumeSize,omitempty"`
	// VolumeType is EBS's name of the volume's type.
	//
	// +optional
	// +kubebuilder:validation:Enum=standard;io1;io2;gp2;sc1;st1;gp3
	VolumeType *string `json:"volumeType,omitempty"`
}

// InstanceStorePolicy says what is made of an instance's local disks.
type InstanceStorePolicy string

// InstanceStorePolicyRAID0 stripes them into one volume.
const InstanceStorePolicyRAID0 InstanceStorePolicy = "RAID0"

// NetworkInterface is one interface of an instance.
type NetworkInterface struct {
	// NetworkCardIndex is the card that the interface is on.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	NetworkCardIndex int32 `json:"networkCardIndex"`
	// DeviceIndex is the interface's place on the card.
	//
	// +required
	// +kubebuilder:validation:Minimum=0
	DeviceIndex int32 `json:"deviceIndex"`
	// InterfaceType is interface, or efa-only for one that carries no IP traffic.
	//
	// +required
	// +kubebuilder:validation:Enum=interface;efa-only
	InterfaceType InterfaceType `json:"interfaceType"`
}

// InterfaceType is a kind of network interface.
type InterfaceType string

// Kinds of network interfaces.
const (
	InterfaceTypeInterface InterfaceType = "interface"
	InterfaceTypeEFAOnly   InterfaceType = "efa-only"
)

// ConnectionTracking sets how long security groups remember idle connections, in
// seconds.
//
// +kubebuilder:validation:XValidation:rule="has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",message="connectionTracking needs one of its timeouts"
type ConnectionTracking struct {
	// TCPEstablishedTimeout is for established TCP connections.
	//
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=432000
	TCPEstablishedTimeout *int32 `json:"tcpEstablishedTimeout,omitempty"`
	// UDPStreamTimeout is for UDP flows with more than one request and answer.
	//
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=180
	UDPStreamTimeout *int32 `json:"udpStreamTimeout,omitempty"`
	// UDPTimeout is for UDP flows in one direction, or with one request and answer.
	//
	// +optional
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=60
	UDPTimeout *int32 `json:"udpTimeout,omitempty"`
}

// CPUOptions narrow and configure the processor.
type CPUOptions struct {
	// NestedVirtualization enabled launches only types that can do it, with it on.
	//
	// +optional
	// +kubebuilder:validation:Enum=enabled;disabled
	NestedVirtualization *NestedVirtualization `json:"nestedVirtualization,omitempty"`
}

// NestedVirtualization is enabled or disabled.
type NestedVirtualization string

// States of nested virtualization.
const (
	NestedVirtualizationEnabled  NestedVirtualization = "enabled"
	NestedVirtualizationDisabled NestedVirtualization = "disabled"
)

// EnclaveOptions ask for Nitro Enclaves.
type EnclaveOptions struct {
	// Enabled launches only types that can run enclaves, with them allowed.
	//
	// +required
	Enabled *bool `json:"enabled"`
}

// EC2NodeClassList is a page of EC2NodeClasses.
//
// +kubebuilder:object:root=true
type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EC2NodeClass `json:"items"`
}

// GetConditions returns the conditions as they stand in the object.
func (c *EC2NodeClass) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions.
func (c *EC2NodeClass) SetConditions(l []metav1.Condition) { c.Status.Conditions = l }
