# What Coppice needs of an AWS account for one EKS cluster: the same as
# cloudformation.yaml beside it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.40"
    }
  }
}

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

# Names begin alike and end in what makes them unique: a cluster's name may be longer
# than theirs, and roles are the account's, in every region.
locals {
  region = data.aws_region.current.name

  rules = join(":", [
    "arn", data.aws_partition.current.partition, "events", local.region, data.aws_caller_identity.current.account_id, "rule",
  ])

  # What EC2 and Health say of instances that are about to end.
  notices = {
    spot-interruption = {
      source      = "aws.ec2"
      detail-type = "EC2 Spot Instance Interruption Warning"
      detail      = null
    }
    rebalance = {
      source      = "aws.ec2"
      detail-type = "EC2 Instance Rebalance Recommendation"
      detail      = null
    }
    state-change = {
      source      = "aws.ec2"
      detail-type = "EC2 Instance State-change Notification"
      detail      = { state = ["stopping", "stopped", "shutting-down", "terminated"] }
    }
    reservation-interruption = {
      source      = "aws.ec2"
      detail-type = "EC2 Capacity Reservation Instance Interruption Warning"
      detail      = null
    }
    scheduled-change = {
      source      = "aws.health"
      detail-type = "AWS Health Event"
      detail      = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
    }
  }
}

resource "aws_sqs_queue" "interruption" {
  name_prefix = "coppice-"
  # A message is worth nothing after a few minutes: the instance is gone then.
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EventBridgeSends"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.interruption.arn
        Condition = { ArnLike = { "aws:SourceArn" = "${local.rules}/*" } }
      },
      {
        Sid       = "OverTLSAlone"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.interruption.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "notice" {
  for_each = local.notices

  name_prefix = "coppice-${each.key}-"
  event_pattern = jsonencode({
    for key, value in {
      source      = [each.value.source]
      detail-type = [each.value.detail-type]
      detail      = each.value.detail
    } : key => value if value != null
  })
  tags = var.tags
}

resource "aws_cloudwatch_event_target" "notice" {
  for_each = aws_cloudwatch_event_rule.notice

  rule      = each.value.name
  target_id = "interruption-queue"
  arn       = aws_sqs_queue.interruption.arn
}

# What nodes are.
resource "aws_iam_role" "node" {
  name_prefix = "CoppiceNode-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
      Action    = "sts:AssumeRole"
    }]
  })
  tags = var.tags
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each = toset([
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
  ])

  role       = aws_iam_role.node.name
  policy_arn = "arn:${data.aws_partition.current.partition}:iam::aws:policy/${each.value}"
}

resource "aws_eks_access_entry" "node" {
  cluster_name  = var.cluster_name
  principal_arn = aws_iam_role.node.arn
  type          = "EC2_LINUX"
  tags          = var.tags
}

# What the controller is.
resource "aws_iam_role" "controller" {
  name_prefix = "CoppiceController-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
    }]
  })
  tags = var.tags
}

resource "aws_iam_policy" "controller" {
  name_prefix = "CoppiceController-"
  policy = templatefile("${path.module}/../controller-policy.json", {
    partition     = data.aws_partition.current.partition
    region        = local.region
    account       = data.aws_caller_identity.current.account_id
    cluster       = var.cluster_name
    node_role_arn = aws_iam_role.node.arn
    queue_arn     = aws_sqs_queue.interruption.arn
  })
  tags = var.tags
}

resource "aws_iam_role_policy_attachment" "controller" {
  role       = aws_iam_role.controller.name
  policy_arn = aws_iam_policy.controller.arn
}

resource "aws_eks_pod_identity_association" "controller" {
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.controller.arn
  tags            = var.tags
}
